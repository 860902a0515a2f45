#include <tessera/faces/training.h>

#include <ATen/ATen.h>

#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/rules/checkpointing.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/loop/sharding.h>

namespace tessera::faces {
namespace {

void refuse_model_features(const OptimizationConfig& config) {
  if (config.fp8_format != Fp8Format::none)
    throw InputError(
        concat("fp8_format ", config.fp8_format,
               " (mixed_precision fp8): your own module does not compute in fp8, only the models of tessera train do; "
               "choose bf16, or open an nn::Fp8Scope around its calls of nn::linear yourself and remove the setting"));
  if (!config.compression_training.empty())
    throw InputError(
        "compression_training: your own module is not rounded to few bits, only the models of tessera train are; "
        "call nn::fake_quantize() or nn::fake_quantized_linear() in its forward yourself and remove the setting");
  for (const auto& [name, given] : {std::pair("progressive_layer_drop", &config.progressive_layer_drop),
                                    std::pair("data_efficiency", &config.data_efficiency)})
    if (!given->empty())
      throw InputError(concat(name,
                              ": blocks are skipped in the models of tessera train, not in your own "
                              "module; choose in its forward what is computed and remove the setting"));
}

}  // namespace

Training::Training(std::shared_ptr<torch::nn::Module> module, const RunConfig& config, std::int64_t accumulation,
                   const train::MakeUpdate& make_update, TrainingRanks ranks, bool has_model_features)
    : config_(std::make_shared<RunConfig>(config)), ranks_(std::move(ranks)), accumulation_(accumulation) {
  const auto loss_scale = train::make_loss_scale(config_->optimization);
  if (!module) throw InputError("the module to train is a null pointer");
  if (accumulation_ < 1)
    throw InputError(concat("gradient_accumulation_steps is ", accumulation_, "; it must be at least 1"));
  if (!has_model_features) refuse_model_features(config_->optimization);
  const auto ours = std::dynamic_pointer_cast<models::LanguageModel>(module);
  ParallelConfig& parallel = config_->parallel;
  if (parallel.deterministic_reduce && parallel.logical_shards == 0)
    parallel.logical_shards = ranks_.data.size() * accumulation_;
  if (const std::string slow = train::precision_warning(*config_, ranks_.all.device().type());
      !slow.empty() && ranks_.all.rank() == 0)
    log::warning(slow);
  module->to(ranks_.all.device());
  if (ranks_.tensor) {
    layout::TensorPlan plan = plan_of(ranks_, *module);
    if (config_->sharding.sync_module_states) share_values(*module, ranks_.tensor);
    tensor_.emplace(
        *module, TensorParallelOptions{
                     .group = ranks_.tensor, .plan = std::move(plan), .sequence_parallel = parallel.sequence_parallel});
  }
  ShardingOptions options = train::sharding_options(*config_, *module, ranks_.data);
  options.reduction = comm::Reduction::mean;  // the caller's loss is the mean over its own rows
  options.gradient_predivide_factor = ranks_.data.size() > 1 ? config_->optimization.gradient_predivide_factor : 1;
  divide(module, std::move(options), loss_scale);
  if (config_->optimization.gradient_checkpointing && ours)
    checkpointing_ = models::checkpoint_blocks(
        *ours, config::parse_checkpoint_plan(config_->optimization.gradient_checkpointing_kwargs));
  else if (config_->optimization.gradient_checkpointing && ranks_.all.rank() == 0)
    log::warning(
        "gradient_checkpointing has no effect on your own module: call tessera::checkpointed() in its forward");
  set_update(make_update(*module, sharded()));
}

bool Training::saves_whole() const { return config_->output.save_state_dict_type == StateDictType::full; }

void Training::make_whole() {
  sharded().restore();
  if (tensor_) tensor_->restore();
}

at::Tensor Training::widen(const at::Tensor& output) {
  const bool narrow = output.defined() && (output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16);
  return narrow ? output.to(at::kFloat) : output;
}

at::Tensor Training::narrow(const at::Tensor& input) const {
  const FloatType type = config_->sharding.param_dtype;
  if (type == FloatType::fp32) return nn::rounding() ? widen(input) : input;
  if (!input.defined() || !input.is_floating_point()) return input;
  return input.to(type == FloatType::bf16 ? at::kBFloat16 : at::kHalf);
}

void Training::set_accumulation(std::int64_t micro_batches) {
  if (micro_batches < 1)
    throw InputError(concat("micro-batches of a step: ", micro_batches, "; it must be at least 1"));
  if (config_->parallel.deterministic_reduce && micro_batches != accumulation_)
    throw InputError(
        "with deterministic_reduce the number of micro-batches of a step is part of the fixed order: it cannot change "
        "during training");
  accumulation_ = micro_batches;
}

void Training::backward(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1)
    throw InputError(
        concat("backward: the loss has ", loss.defined() ? loss.numel() : 0, " elements; pass its mean, one number"));
  // in fixed order the reduction divides by all micro-batches of all ranks
  const double scale =
      (config_->parallel.deterministic_reduce ? 1.0 : 1.0 / static_cast<double>(accumulation_)) * loss_factor();
  StepCore::backward(scale == 1 ? loss : widen(loss) * scale);
}

}  // namespace tessera::faces
