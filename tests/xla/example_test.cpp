// Runs examples/xla_training as a user would.

#include <gtest/gtest.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>
#include <tests/xla/plugin_for_tests.h>

namespace tessera {
namespace {

launch::Captured start(const std::string& devices, const std::string& plugin) {
  return launch::run_and_capture({testing::build_path("examples/xla_training"), devices},
                                 {{"TESSERA_PJRT_PLUGIN", plugin}, {"OMP_NUM_THREADS", "1"}}, testing::patience(120));
}

TEST(XlaExample, TrainsAModuleOfTorchOnly) {
  if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  const auto ended = start("4", testing::cpu_plugin());
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto number_after = [&](const std::string& words) {
    const std::size_t found = ended.out.find(words);
    EXPECT_NE(found, std::string::npos) << words << " in " << ended.out;
    return found == std::string::npos ? 0 : std::stod(ended.out.substr(found + words.size()));
  };
  EXPECT_TRUE(ended.out.starts_with("4 x cpu (PJRT plug-in ")) << ended.out;
  const double early = number_after("step 10: loss "), late = number_after("step 60: loss ");
  EXPECT_LT(late, 0.5 * early) << ended.out;
  EXPECT_NEAR(number_after("on the CPU: loss "), late, 0.2 * early);
}

TEST(XlaExample, SaysWhatIsMissing) {
  const auto ended = start("2", "/nowhere.so");
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("the PJRT plug-in cannot be loaded: /nowhere.so"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace tessera
