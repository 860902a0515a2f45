// Steps compiled for TPUs that this machine does not have. TESSERA_LIBTPU names libtpu.so; without it these tests are
// skipped.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tessera/xla/devices.h>
#include <tests/error_of.h>

#include <cstdlib>

namespace tessera {
namespace {

class XlaTopologies : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const libtpu = std::getenv("TESSERA_LIBTPU");
    if (libtpu == nullptr) GTEST_SKIP() << "TESSERA_LIBTPU does not name libtpu.so";
    libtpu_ = libtpu;
  }
  /// The step of a GPT-2 with eight blocks, one row of eight tokens per device.
  xla::TopologyReport compile(const std::string& topology) const {
    const auto model = models::make_language_model(
        models::with_overrides(models::preset("gpt2-tiny"),
                               "n_layer=8,n_embd=128,n_head=2,vocab_size=64,n_positions=8,resid_pdrop=0,embd_pdrop=0,"
                               "attn_pdrop=0"),
        1);
    xla::TopologyRequest request{.plugin = libtpu_, .topology = topology, .micro_batch = {}};
    request.micro_batch = {{{1, 8}, at::kLong}, {{1, 8}, at::kLong}};
    xla::TrainingOptions options;
    options.units = {.kind = layout::WrapPolicy::Kind::by_regex, .pattern = R"((.*\.)?h\.\d+)"};
    const auto loss = [&](const std::vector<at::Tensor>& batch) {
      data::Batch given;
      given.ids = batch[0];
      given.labels = batch[1];
      return model->loss(given, 1);
    };
    return comm::plugin_table<xla::XlaPlugin>("xla").compile_ahead(request, *model, loss, options);
  }
  std::string libtpu_;
};

TEST_F(XlaTopologies, EachCompilesTheStep) {
  struct Case {
    std::string topology, kind;
    int devices;
  };
  const std::vector<Case> cases = {{"v5e:2x2", "TPU v5 lite", 4},
                                   {"v5e:4x4", "TPU v5 lite", 16},
                                   {"v5p:2x2x1", "TPU v5", 4},
                                   {"v6e:2x2", "TPU v6 lite", 4},
                                   {"tpu7x:2x2x1", "TPU7x", 8}};
  const int units = 9;  // eight blocks and the root
  for (const Case& c : cases) {
    SCOPED_TRACE(c.topology);
    const xla::TopologyReport report = compile(c.topology);
    EXPECT_EQ(report.devices, c.devices);
    EXPECT_EQ(report.kind, c.kind);
    ASSERT_EQ(report.programs.size(), 3u);
    const xla::ProgramReport& gradients = report.programs[0];
    EXPECT_EQ(gradients.collectives.gathers, 2 * units);
    EXPECT_EQ(gradients.collectives.reduce_scatters, units);
    EXPECT_EQ(gradients.collectives.all_reduces, 0);
    EXPECT_EQ(report.programs[1].collectives.all_reduces, 1);
    // Parameters and gradients are half of the states of AdamW; each array is padded to 4 KiB, the batch's two and the
    // loss as well.
    const std::int64_t half = report.states / 2, arrays = 2 * units + 3;
    EXPECT_GE(gradients.memory.arguments, half);
    EXPECT_LE(gradients.memory.arguments, half + 4096 * arrays);
  }
}

TEST_F(XlaTopologies, AnUnknownOneIsNamed) {
  const std::string error = testing::error_of<Error>([&] { (void)compile("v99:2x2"); });
  EXPECT_TRUE(error.starts_with("describing the topology v99:2x2: ")) << error;
}

}  // namespace
}  // namespace tessera
