// Refusals of the compiled step, with their exact texts.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/comm/world.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tessera/nn/dropout.h>
#include <tessera/train/features/features.h>
#include <tessera/train/loop/compiled_run.h>
#include <tessera/xla/devices.h>
#include <tessera/xla/step/compiled_training.h>
#include <tests/error_of.h>
#include <tests/models/decoder_fixture.h>
#include <tests/xla/plugin_for_tests.h>
#include <torch/nn/module.h>

#include <filesystem>

namespace tessera {
namespace {

using testing::error_of;

/// A feature of the kind that a user might add.
class Watcher final : public train::MicroBatchFeature {
 public:
  explicit Watcher(std::string what) : what_(std::move(what)) {}
  std::string acts_on(const models::LanguageModel&) const override { return what_; }

 private:
  std::string what_;
};

TEST(XlaRefusals, AFeatureThatActsWithinAStep) {
  static_assert(!std::is_base_of_v<train::MicroBatchFeature, train::RunFeature>);
  const auto model = models::make_language_model(
      models::with_overrides(models::preset("gpt2-tiny"), "n_layer=1,n_embd=16,n_head=2,vocab_size=31"), 1);
  train::Features features;
  features.add(std::make_unique<Watcher>(""));
  EXPECT_EQ(error_of([&] { features.require_none_within_step(*model); }), "");
  features.add(std::make_unique<Watcher>("--watch"));
  EXPECT_EQ(error_of([&] { features.require_none_within_step(*model); }),
            "device xla: --watch acts within a step, which is compiled as a whole; remove it");
}

/// One parameter, and the test's loss.
struct Small : torch::nn::Module {
  explicit Small(at::ScalarType type = at::kFloat) { weight = register_parameter("weight", at::ones({4, 3}, type)); }
  at::Tensor weight;
};
using Tensors = std::vector<at::Tensor>;
using Loss = std::function<at::Tensor(const at::Tensor& weight, const Tensors& batch)>;

class XlaRefusedSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  }
  /// The error of a step with one micro-batch.
  static std::string error(const Loss& loss, const at::Tensor& input) {
    Small module;
    xla::CompiledTraining training(testing::cpu_devices(1), module,
                                   [&](const Tensors& batch) { return loss(module.weight, batch); }, {});
    return testing::error_of([&] { training.accumulate({{{input}}}); });
  }
};

TEST_F(XlaRefusedSteps, ByWhatTheirLossDoes) {
  const at::Tensor ids = at::zeros({2, 5}, at::kLong);
  struct Case {
    Loss loss;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](const at::Tensor& w, const Tensors&) { return w * 2; },
       "device xla: the loss must be a scalar of fp32; it is Float [4, 3]"},
      {[](const at::Tensor& w, const Tensors&) { return w.sum().to(at::kDouble); },
       "device xla: the loss must be a scalar of fp32; it is Double []"},
      {[](const at::Tensor& w, const Tensors& b) {
         return at::embedding(w, b[0], -1, /*scale_grad_by_freq=*/true).sum();
       },
       "device xla: an embedding with scale_grad_by_freq cannot be compiled"},
      {[](const at::Tensor& w, const Tensors&) { return at::div(w, 3, "floor").sum(); },
       "device xla: a division with rounding_mode cannot be compiled"},
      {[](const at::Tensor& w, const Tensors& b) { return w.sum() + w.detach().index_select(1, b[0].flatten()).sum(); },
       "device xla: index_select() along a dimension other than the first cannot be compiled"},
      {[](const at::Tensor& w, const Tensors& b) { return w.sum() + w.detach().gather(1, b[0].slice(1, 0, 2)).sum(); },
       "device xla: gather() of only some rows cannot be compiled"},
      {[](const at::Tensor& w, const Tensors&) { return (w + at::rand({4, 3})).sum(); },
       "the step cannot be captured: aten::rand draws random numbers, which a compiled step would repeat in every "
       "step; use nn::dropout(), which draws by place"},
      {[](const at::Tensor& w, const Tensors&) { return (w + nn::uniform(1, 4, 3, {.key = 1}, at::kCPU)).sum(); },
       "added random numbers (NEFTune's noise) cannot be compiled into a step"},
      {[](const at::Tensor& w, const Tensors& b) { return (w * b[0].max().item<std::int64_t>()).sum(); },
       "the step cannot be captured: aten::_local_scalar_dense makes the step's control flow depend on data"},
      {[](const at::Tensor& w, const Tensors&) {
         return w.sum() + w.detach().erfinv().sum() + w.detach().lgamma().sum();
       },
       "device xla: the step uses 2 operators that cannot be compiled:\n  erfinv, in or after the root module\n  "
       "lgamma, in or after the root module"},
      {[](const at::Tensor& w, const Tensors&) {
         return w.sum() + w.detach().to(at::kComplexFloat).to(at::kFloat).sum();
       },
       "device xla: tensors of type ComplexFloat are not supported"},
  };
  for (const Case& c : cases) EXPECT_EQ(error(c.loss, ids).substr(0, c.message.size()), c.message);
}

TEST_F(XlaRefusedSteps, ByWhatTheyAreGiven) {
  const auto loss = [](const Small& module) {
    return [&module](const Tensors& batch) { return (module.weight * batch[0]).sum(); };
  };
  Small wide(at::kDouble);
  EXPECT_EQ(testing::error_of([&] { xla::CompiledTraining(testing::cpu_devices(1), wide, loss(wide), {}); }),
            "device xla: weight is stored as Double; parameters must be fp32");
  Small module;
  xla::CompiledTraining training(testing::cpu_devices(2), module, loss(module), {});
  const at::Tensor one = at::ones({}), other = at::ones({3});
  EXPECT_EQ(testing::error_of([&] { training.accumulate({{{one}}, {{one}}, {{one}}}); }),
            "device xla: 3 micro-batches for 2 devices; each device needs the same number of them, at least one");
  EXPECT_EQ(testing::error_of([&] { training.accumulate({{{one}}, {{other}}}); }),
            "device xla: all devices run the same program, but two of them got Float [] and Float [3]");
  EXPECT_EQ(testing::error_of([&] { training.set_states({}, 1); }),
            "device xla: missing optimizer state exp_avg.weight");
  const auto add_ones = [&](std::int64_t leading) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(leading), 1);
    sizes.push_back(3);
    training.accumulate({{{at::ones(sizes)}}, {{at::ones(sizes)}}});
  };
  for (std::int64_t leading = 0; leading < 31; ++leading) add_ones(leading);  // one micro-batch was already compiled
  EXPECT_TRUE(
      testing::error_of([&] { add_ones(31); })
          .starts_with("device xla: the micro-batches have 33 different shapes, and each needs its own program; "
                       "the last one is Float [1, 1,"));
}

TEST(XlaRefusals, ModelsAndDevices) {
  const auto refused = [](const std::string& fixture) {
    const auto model = models::make_language_model(testing::decoder_fixture(fixture), 1);
    return error_of([&] { train::check_compilable(*model, nullptr); });
  };
  EXPECT_EQ(refused("llama"), "");
  EXPECT_EQ(refused("mixtral"),
            "device xla: models with experts cannot be compiled: the rows of an expert depend on data");
  EXPECT_EQ(error_of([] { tessera::init({.device = Device::xla}); }),
            "device xla is for `tessera train`; your own program can compile its step with xla::open_devices()");
  unsetenv("TESSERA_PJRT_PLUGIN");
  unsetenv("TPU_LIBRARY_PATH");
  EXPECT_EQ(error_of([] { (void)xla::open_devices(); }),
            "device xla: no PJRT plug-in is set. On a TPU machine run `pip install libtpu` (Google's licence does not "
            "allow us to include it) and set TPU_LIBRARY_PATH to its libtpu.so; for another device set "
            "TESSERA_PJRT_PLUGIN to its plug-in");
}

/// Without the check, libtpu would search for a TPU for minutes.
TEST(XlaRefusals, LibtpuOnAMachineWithoutATpu) {
  if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  if (std::filesystem::exists("/dev/accel0") || std::filesystem::exists("/dev/vfio/0")) GTEST_SKIP() << "a TPU";
  const TemporaryFolder folder;
  const std::string named_so = path_join(folder.path(), "libtpu.so");
  std::filesystem::create_symlink(testing::cpu_plugin(), named_so);
  xla::DeviceRequest request;
  request.plugin = named_so;
  EXPECT_EQ(error_of([&] { (void)xla::open_devices(request); }),
            "device xla: this machine has no TPU (neither /dev/accel0 nor /dev/vfio/0 exists); `tessera xla compile` "
            "needs none, and a PJRT plug-in of XLA's CPU backend runs here (docs/tpu.md)");
}

}  // namespace
}  // namespace tessera
