// What a compiled step is refused for, by its exact text.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tessera/train/features/features.h>
#include <tests/error_of.h>

namespace tessera {
namespace {

using testing::error_of;

/// A feature as somebody might add one.
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
            "device xla: --watch acts within a step, which is compiled as a whole; leave it out");
}

}  // namespace
}  // namespace tessera
