// The calibration file: its curves, its format, and the curve used for a given number of processes.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/plan/costs.h>
#include <tessera/plan/measured.h>
#include <tessera/plan/reference_step.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace tessera::plan {
namespace {

Curve line(double seconds_per_unit) {
  Curve curve;
  for (const double size : {1e3, 1e5, 1e7}) curve.points.push_back({size, size * seconds_per_unit, 0.02});
  return curve;
}

std::shared_ptr<Speeds> speeds(int processes, double factor) {
  auto all = std::make_shared<Speeds>();
  all->processes = processes;
  for (Curve& curve : all->curves) curve = line(factor * 1e-9);
  all->exchanges.push_back({"all_reduce", 2, line(1e-8)});
  all->exchanges.push_back({"all_reduce_shared", 2, line(5e-9)});
  return all;
}

Cluster machine() {
  Cluster c = parse_cluster("CPU");
  c.measured = {speeds(1, 1), speeds(4, 3)};
  c.host_memory = 32e9;
  return c;
}

RC_GTEST_PROP(Curve, LiesBetweenItsNeighboursAndKeepsItsEnds, ()) {
  const Curve curve = line(*rc::gen::inRange(1, 1000) * 1e-9);
  const double size = std::pow(10, *rc::gen::inRange(10, 90) / 10.0);
  const double seconds = curve.at(size), rate = curve.points.front().seconds / curve.points.front().size;
  RC_ASSERT(std::abs(seconds - rate * std::max(size, 1e3)) <= 1e-9 * seconds);
  RC_ASSERT(curve.at(2 * size) >= seconds);
}

TEST(Measured, FileReadsBack) {
  const Cluster c = machine(), read = read_hardware(parse_json(dump_json(hardware_value(c)), "x.json"));
  ASSERT_EQ(read.measured.size(), 2u);
  EXPECT_EQ(read.host_memory, 32e9);
  EXPECT_EQ(read.measured[1]->processes, 4);
  for (const double size : {10.0, 1e4, 3e6, 1e9})
    EXPECT_EQ((*read.measured[1])[Work::norm].at(size), (*c.measured[1])[Work::norm].at(size));
  ASSERT_NE(read.measured[0]->exchange("all_reduce", 2), nullptr);
  EXPECT_EQ(read.measured[0]->exchange("all_reduce", 4), nullptr);
}

// The overhead between operations is added to the compute time only.
TEST(Measured, StepsTakeWhatLiesBetweenOperations) {
  Cluster c = machine();
  c.device.measured = c.measured[0];
  const ReferenceSeconds sum = reference_seconds(c, Precision::fp32, 1),
                         narrow = reference_seconds(c, Precision::bf16, 1);
  EXPECT_GT(sum.computing, 0);
  EXPECT_GT(sum.rest, 0);  // the update
  auto slower = std::make_shared<Speeds>(*c.measured[0]);
  slower->between_fp32 = 1.25;
  slower->between_bf16 = 1.5;
  c.measured[0] = slower;
  c.device.measured = read_hardware(parse_json(dump_json(hardware_value(c)), "x.json")).measured[0];
  const ReferenceSeconds longer = reference_seconds(c, Precision::fp32, 1);
  EXPECT_NEAR(longer.computing, 1.25 * sum.computing, 1e-9 * sum.computing);
  EXPECT_NEAR(longer.rest, sum.rest, 1e-9 * sum.rest);
  EXPECT_NEAR(reference_seconds(c, Precision::bf16, 1).computing, 1.5 * narrow.computing, 1e-9 * narrow.computing);
}

TEST(Measured, FewestProcessesThatAreEnough) {
  const Cluster c = machine();
  EXPECT_EQ(speeds_for(c.measured, 1)->processes, 1);
  EXPECT_EQ(speeds_for(c.measured, 2)->processes, 4);
  EXPECT_EQ(speeds_for(c.measured, 8)->processes, 4);
  EXPECT_EQ(speeds_for({}, 1), nullptr);
}

TEST(Measured, CostsAreTheCurves) {
  Cluster c = machine();
  c.device.measured = c.measured[0];
  EXPECT_DOUBLE_EQ(product_seconds(c.device, 100, 100, 50, 4), 1e-3);
  EXPECT_DOUBLE_EQ(product_backward_seconds(c.device, 100, 100, 50, 2), 1e-3);
  EXPECT_DOUBLE_EQ(pass_seconds(c.device, 1e6), 1e-3);
  const Placed two{2, 2};
  EXPECT_DOUBLE_EQ(collective_seconds(c, two, Collective::all_reduce, 1e6), 1e-2);
  EXPECT_DOUBLE_EQ(collective_seconds(c, two, Collective::all_reduce, 1e6, /*buffers=*/true), 5e-3);
  // Times of collectives that were not measured come from the formula.
  EXPECT_GT(collective_seconds(c, two, Collective::all_gather, 1e6), 0);
}

TEST(Measured, WrongFilesAreRefused) {
  const std::string entry =
      R"({"processes": 1, "threads": 1, "product_fp32": [[1, 1, 0]], "attention_fp32": [[1, 1, 0]],
    "norm": [[1, 1, 0]], "gate": [[1, 1, 0]], "update": [[1, 1, 0]]})";
  EXPECT_EQ(read_speeds(parse_json("[" + entry + "]", "x")).size(), 1u);
  const auto refused = [](const std::string& text) {
    try {
      read_speeds(parse_json(text, "x.json"));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused("[" + entry + "," + entry + "]").find("must ascend"), std::string::npos);
  EXPECT_NE(refused(R"([{"processes": 1, "threads": 1}])").find("\"product_fp32\" is missing"), std::string::npos);
  EXPECT_NE(refused(R"([{"processes": 1, "threads": 1, "nrm": [[1, 1, 0]]}])").find("did you mean norm?"),
            std::string::npos);
  EXPECT_NE(refused(R"([{"processes": 0, "threads": 1}])").find("1 to 65536"), std::string::npos);
  for (const char* curve : {"[]", "[[1, 1]]", "[[0, 1, 0]]", "[[1, -1, 0]]", "[[2, 1, 0], [1, 1, 0]]", "[[1, 1, -1]]"})
    EXPECT_NE(refused(concat(R"([{"processes": 1, "threads": 1, "norm": )", curve, "}]")).find("x.json:"),
              std::string::npos)
        << curve;
}

}  // namespace
}  // namespace tessera::plan
