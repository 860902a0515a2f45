#include <tessera/train/loop/passes.h>

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include <tessera/comm/heartbeat.h>
#include <tessera/data/to_device.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/send.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/core/random_key.h>
#include <tessera/train/loop/pipeline.h>

namespace tessera::train {
namespace {

std::uint64_t seed_of(const Setup& setup) { return static_cast<std::uint64_t>(setup.config.optimization.seed); }

/// Passes through the whole model, one micro-batch after another. Only the last backward reduces gradients; in fixed
/// order each one does.
class WholeModel : public StepPasses {
 public:
  explicit WholeModel(const PassParts& parts) : parts_(parts) {}

  void compute(const std::vector<data::Batch>& batches, std::int64_t step, const LossScales& scales) override {
    const Features& features = parts_.setup.features;
    StepCore& core = parts_.model.core;
    for (std::size_t micro = 0; micro < batches.size(); ++micro) {
      parts_.clock.enter(Phase::forward);
      core.expect_step(micro + 1 == batches.size());
      key_random_numbers(parts_.world.device(), seed_of(parts_.setup), step, batches[micro].first_row);
      features.each_within_step(&MicroBatchFeature::begin_micro_batch, batches[micro]);
      const at::Tensor loss = on_device(
          batches[micro], [&](const data::Batch& batch) { return parts_.objective.loss(batch, scales.scale); });
      // Ranks of tp have the same loss, and their logged values are summed. Read before the backward pass: the device
      // copies the number while backward runs.
      const double tensor_ranks = parts_.setup.groups.tensor_ranks();
      parts_.window.add_loss(nn::LateNumber(loss), [=](double scaled) {
        return scales.scale == 0 ? 0 : scaled / scales.scale * scales.logged / tensor_ranks;
      });
      parts_.clock.enter(Phase::backward);
      core.backward(loss);
      features.each_within_step(&MicroBatchFeature::after_backward);
    }
  }

  void rehearse(const data::Batch& batch) override {
    on_device(batch, [&](const data::Batch& there) { return parts_.objective.trial_loss(there); }).backward();
  }

 private:
  template <class Loss>
  at::Tensor on_device(const data::Batch& batch, const Loss& loss) const {
    const nn::Autocast precision(training_precision(parts_.setup.config), parts_.world.device().type());
    return loss(to_device(batch, parts_.world.device()));
  }

  const PassParts parts_;
};

/// Passes through stages of the model on several ranks. Gradients are reduced once, after all micro-batches; in fixed
/// order once per backward.
class PipelinedModel : public StepPasses {
 public:
  explicit PipelinedModel(const PassParts& parts)
      : parts_(parts),
        fixed_order_(parts.setup.config.parallel.deterministic_reduce),
        pipeline_(*parts.setup.pipeline, parts.setup.config, parts.setup.groups, *parts.setup.model,
                  parts.model.sharded(),
                  [clock = &parts.clock](bool forward) { clock->enter(forward ? Phase::forward : Phase::backward); }) {
    const RunPlan& plan = parts.setup.plan;
    for (const RunPlan::Segment& segment : plan.segments) pipeline_.prepare_for(plan.micro_batches(segment.step));
  }

  void compute(const std::vector<data::Batch>& batches, std::int64_t step, const LossScales& scales) override {
    const RunGroups& groups = parts_.setup.groups;
    Sharded& sharded = parts_.model.sharded();
    key_random_numbers(parts_.world.device(), seed_of(parts_.setup), step,
                       parts_.setup.plan.first_row(step, 0, groups.place));
    std::vector<double> losses;
    {
      std::optional<Sharded::AccumulateLocally> together;
      if (!fixed_order_) together.emplace(sharded);
      losses = pipeline_.train(batches, scales.scale);
    }
    const double share = !fixed_order_ ? 1.0 / ranks_with_same_loss(groups) : groups.pipeline.rank() == 0 ? 1.0 : 0.0;
    for (const double loss : losses)
      parts_.window.add_loss(scales.scale == 0 ? 0 : loss / scales.scale * scales.logged * share);
    parts_.setup.features.each_within_step(&MicroBatchFeature::after_backward);
    parts_.clock.enter(Phase::backward, "reduce");
    if (!fixed_order_) sharded.reduce();
    pipeline_.add_tied_gradients(sharded);
    parts_.model.core.gradients_changed();
    comm::heartbeat().advance();
  }

  /// Runs as many micro-batches as the largest step.
  void rehearse(const data::Batch& batch) override {
    const Sharded::AccumulateLocally together(parts_.model.sharded());
    pipeline_.rehearse({static_cast<std::size_t>(parts_.setup.plan.accumulation), batch});
    parts_.model.sharded().zero_grad();
  }

  LossesOf losses() override {
    return [this](const auto& batches, const auto& scales) { return pipeline_.evaluate(batches, scales); };
  }
  std::string describe() const override { return concat("pipeline: ", train::describe(pipeline_.plan())); }
  std::string drawing() override { return pipeline_.drawing(); }
  std::string first_not_finite() override { return pipeline_.first_not_finite(parts_.world.group()); }

 private:
  const PassParts parts_;
  const bool fixed_order_;
  RunPipeline pipeline_;
};

}  // namespace

std::unique_ptr<StepPasses> make_passes(const PassParts& parts) {
  if (parts.setup.pipeline) return std::make_unique<PipelinedModel>(parts);
  return std::make_unique<WholeModel>(parts);
}

bool one_tells_loss(const Setup& setup) { return setup.pipeline && setup.config.parallel.deterministic_reduce; }

int ranks_with_same_loss(const RunGroups& groups) { return groups.tensor_ranks() * groups.pipeline_ranks(); }

}  // namespace tessera::train
