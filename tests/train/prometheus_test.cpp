// The output of --metrics_file, checked against the rules of the text format.

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/train/reporting/prometheus.h>
#include <tests/paths.h>

namespace tessera::train {
namespace {

Exposition everything() {
  StepMetrics step;
  step.step = 12;
  step.loss = 2.5;
  step.step_time_ms = 250;
  step.flops_utilization = 0.5;
  step.memory_by_rank = {1 << 20, 2 << 20};
  step.shares = {3, 5};
  step.noise.scale = 64;
  return {.job = "a \"b\"\\\nc",
          .wall_time = 7,
          .planned = 20,
          .seconds_left = 9,
          .step = step,
          .evaluation = EvalMetrics{.loss = std::nan("")}};
}

TEST(Prometheus, EveryLineHasTheForm) {
  const std::regex comment("# (HELP [a-z_]+ [A-Z1][^\n]*|TYPE [a-z_]+ (gauge|counter))");
  const std::regex sample(R"re(([a-z_]+)\{job="a \\"b\\"\\\\\\nc"(,[a-z]+="[a-z0-9_]+")?\} (NaN|[-+0-9.e]+))re");
  std::set<std::string> samples;
  std::string name;
  const std::string text = prometheus_text(everything());
  ASSERT_TRUE(text.ends_with("\n"));
  for (const std::string& line : split(text.substr(0, text.size() - 1), '\n')) {
    if (line.starts_with("# TYPE ")) name = line.substr(7, line.find(' ', 7) - 7);
    std::smatch found;
    if (line.starts_with("#")) {
      EXPECT_TRUE(std::regex_match(line, comment)) << line;
    } else if (std::regex_match(line, found, sample)) {
      EXPECT_EQ(found[1].str(), name) << "samples follow their own TYPE line: " << line;
      EXPECT_TRUE(samples.insert(line.substr(0, line.find("} "))).second) << "twice: " << line;
    } else {
      ADD_FAILURE() << line;
    }
  }
  for (const char* part : {"tessera_steps_total{job=\"a \\\"b\\\"\\\\\\nc\"} 12\n", "tessera_step_seconds",
                           ",rank=\"1\"} 2097152\n", "tessera_evaluation_loss", "} NaN\n", ",phase=\"forward\"}"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(Prometheus, TheDashboardAsksForWhatIsThere) {
  const std::string dashboard = read_file(testing::source_path("docs/grafana.json")),
                    text = prometheus_text(everything());
  (void)parse_json(dashboard, "docs/grafana.json");
  const std::regex metric("tessera_[a-z_]+");
  std::set<std::string> asked;
  for (auto at = std::sregex_iterator(dashboard.begin(), dashboard.end(), metric); at != std::sregex_iterator(); ++at)
    asked.insert(at->str());
  EXPECT_GE(asked.size(), 12u);
  for (const std::string& name : asked) EXPECT_NE(text.find(concat("# TYPE ", name, " ")), std::string::npos) << name;
}

TEST(Prometheus, SaysNothingThatIsNotKnown) {
  const std::string begun = prometheus_text({.job = "j", .wall_time = 1});
  EXPECT_NE(begun.find("tessera_running{job=\"j\"} 1\n"), std::string::npos);
  for (const char* part : {"loss", "planned", "steps_total"}) EXPECT_EQ(begun.find(part), std::string::npos) << part;
  Exposition ended = everything();
  ended.running = false;
  EXPECT_NE(prometheus_text(ended).find("tessera_remaining_seconds{job=\"a \\\"b\\\"\\\\\\nc\"} 0\n"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::train
