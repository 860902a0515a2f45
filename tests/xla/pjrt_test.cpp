// The C interface of plug-ins: transfers, collectives, errors.

#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/xla/hlo/operations.h>
#include <third_party/pjrt/pjrt_c_api.h>

#include <tests/xla/plugin_for_tests.h>

#include <cmath>
#include <functional>
#include <numeric>

namespace tessera {
namespace {

using testing::cpu_devices;

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

class Pjrt : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  }
};

TEST_F(Pjrt, ArraysComeBackAsTheyWent) {
  const auto client = cpu_devices(2);
  EXPECT_EQ(client->platform(), "cpu");
  ASSERT_EQ(client->devices(), 2);
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), 1.5f);
  const std::vector<std::int64_t> sizes = {2, 3};
  for (const int device : {0, 1}) {
    const xla::Buffer buffer = client->upload(values.data(), xla::Element::float32, sizes, device);
    EXPECT_EQ(buffer.sizes(), sizes);
    std::vector<float> back(6);
    buffer.read(back.data(), back.size() * sizeof(float));
    EXPECT_EQ(back, values);
    EXPECT_NE(error_of([&] { buffer.read(back.data(), 20); }).find("has 24 bytes, but 20 were expected"),
              std::string::npos);
  }
}

TEST_F(Pjrt, DevicesSumAndDivide) {
  const auto client = cpu_devices(4);
  xla::hlo::Function f;
  const auto x = f.argument({{8}, xla::Element::float32});
  const auto part = xla::hlo::reduce_scatter(f, x, 4);
  f.result(xla::hlo::all_gather(f, part, 4));
  f.result(xla::hlo::all_reduce(f, x, 4));
  f.result(xla::hlo::device_number(f));
  const auto program = client->compile(f.module({.replicas = 4}), {.replicas = 4});
  std::vector<xla::Buffer> inputs;
  std::vector<std::vector<const xla::Buffer*>> arguments(4);
  std::vector<float> sums(8, 0);
  const std::vector<std::int64_t> sizes = {8};
  for (int d = 0; d < 4; ++d) {
    std::vector<float> values(8);
    for (std::size_t i = 0; i < 8; ++i) sums[i] += values[i] = static_cast<float>(d * 10) + static_cast<float>(i);
    inputs.push_back(client->upload(values.data(), xla::Element::float32, sizes, d));
  }
  for (std::size_t d = 0; d < 4; ++d) arguments[d].push_back(&inputs[d]);
  const auto results = program->run(arguments);
  for (std::size_t d = 0; d < 4; ++d) {
    std::vector<float> gathered(8), reduced(8);
    std::int32_t number = -1;
    results[d][0].read(gathered.data(), 32);
    results[d][1].read(reduced.data(), 32);
    results[d][2].read(&number, 4);
    EXPECT_EQ(gathered, sums);
    EXPECT_EQ(reduced, sums);
    EXPECT_EQ(number, static_cast<std::int32_t>(d));
  }
}

TEST_F(Pjrt, TheErrorFunctionIsExactToRoundings) {
  const auto client = cpu_devices(1);
  std::vector<float> x;
  for (int i = -600; i <= 600; ++i) x.push_back(static_cast<float>(i) * 0.01f);
  const std::vector<std::int64_t> sizes = {static_cast<std::int64_t>(x.size())};
  xla::hlo::Function f;
  f.result(xla::hlo::erf(f, f.argument({sizes, xla::Element::float32})));
  const auto program = client->compile(f.module({}), {});
  const xla::Buffer input = client->upload(x.data(), xla::Element::float32, sizes, 0);
  std::vector<float> y(x.size());
  program->run({{&input}})[0][0].read(y.data(), y.size() * sizeof(float));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], std::erf(x[i]), 3e-7) << x[i];
}

/// Doubles donated weights of width 512 four times; returns whether a product with them ever used older ones.
bool uses_old_weights(const xla::CompileOptions& options) {
  constexpr std::int64_t width = 512;
  const auto client = cpu_devices(1);
  const std::vector<std::int64_t> sizes = {width, width};
  const xla::hlo::Type type{sizes, xla::Element::float32};
  xla::hlo::Function f;
  const auto weights = f.argument(type, /*donated_to=*/0), x = f.argument(type);
  // Not hlo::dot(), whose products, of the highest precision, XNNPACK does not compute.
  const std::string square = xla::hlo::text(type);
  const auto y = f.write(concat("stablehlo.dot_general ", x.name, ", ", weights.name,
                                ", contracting_dims = [1] x [0] : (", square, ", ", square, ") -> ", square),
                         type);
  f.result(xla::hlo::binary(f, "add", weights, weights));
  f.result(y);
  const auto program = client->compile(f.module({}), options);
  std::vector<float> ones(static_cast<std::size_t>(width * width), 1), product(ones.size());
  xla::Buffer now = client->upload(ones.data(), xla::Element::float32, sizes, 0);
  const xla::Buffer input = client->upload(ones.data(), xla::Element::float32, sizes, 0);
  bool old = false;
  for (int step = 0; step < 4; ++step) {
    auto results = program->run({{&now, &input}});
    results[0][1].read(product.data(), product.size() * sizeof(float));
    old = old || product[0] != static_cast<float>(width << step);
    now = std::move(results[0][0]);
  }
  return old;
}

/// On some processors the plug-in of version 0.81 packs a product's operand with XNNPACK and finds it again by its
/// address, unless the flag, which compiled steps set, prevents it. The result without the flag shows which kind
/// this processor is.
TEST_F(Pjrt, AProductUsesTheNewestWeights) {
  EXPECT_FALSE(uses_old_weights({.flags = {{"xla_cpu_use_xnnpack", false}}}));
  const bool old = uses_old_weights({});
  RecordProperty("uses_old_weights_with_xnnpack", old ? "yes" : "no");
  if (xla::Plugin::load(testing::cpu_plugin())->api().pjrt_api_version.minor_version > 81) {
    EXPECT_FALSE(old);
  }
}

TEST_F(Pjrt, TheCompilersTextIsTheError) {
  const std::string error = error_of([] { (void)cpu_devices(1)->compile("module { nonsense }", {}); });
  EXPECT_TRUE(error.starts_with("compiling a program: ")) << error;
  EXPECT_NE(error.find("(PJRT plug-in " + testing::cpu_plugin() + ")"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera
