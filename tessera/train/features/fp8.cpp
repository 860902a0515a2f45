#include <tessera/train/features/fp8.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/models/layers.h>
#include <tessera/train/features/run_feature.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::train {
namespace {

/// "model.layers.12.mlp.up_proj" -> 12; nullopt: the module is in no block.
std::optional<std::int64_t> block_of(const std::string& module) {
  for (const std::string& part : split(module, '.'))
    if (const auto number = parse_int(part); number && *number >= 0) return number;
  return std::nullopt;
}

}  // namespace

nn::Fp8Options fp8_options(const OptimizationConfig& config) {
  return {.format = config.fp8_format,
          .recipe = config.fp8_recipe,
          .amax_history_len = config.fp8_amax_history_len,
          .amax_compute = config.fp8_amax_compute_algo,
          .margin = config.fp8_margin};
}

std::shared_ptr<nn::Fp8State> apply_fp8(models::LanguageModel& model, const OptimizationConfig& config,
                                        at::Device device) {
  if (config.fp8_format == Fp8Format::none) return nullptr;
  const std::int64_t blocks = model.shape().blocks, first = config.num_layers_at_start_in_bf16,
                     end = blocks - config.num_layers_at_end_in_bf16;
  std::vector<models::Linear*> maps;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* const linear = dynamic_cast<models::Linear*>(item.value().get());
    const auto block = linear != nullptr ? block_of(item.key()) : std::nullopt;
    if (block && *block >= first && *block < end) maps.push_back(linear);
  }
  if (maps.empty())
    throw InputError(concat("--fp8_format ", config.fp8_format, ": the model has ", blocks,
                            " blocks, of which the first ", first, " and the last ", config.num_layers_at_end_in_bf16,
                            " stay in bf16, so no linear map is left: lower --num_layers_at_start_in_bf16 and "
                            "--num_layers_at_end_in_bf16, or remove --fp8_format"));
  auto state = std::make_shared<nn::Fp8State>(fp8_options(config), static_cast<std::int64_t>(maps.size()), device);
  for (std::size_t i = 0; i < maps.size(); ++i)
    maps[i]->fp8 = std::make_shared<const nn::Fp8Map>(state, static_cast<std::int64_t>(i));
  return state;
}

Value fp8_history(const nn::Fp8State& state) {
  const at::Tensor history = state.history().cpu().flatten(1).contiguous();
  Value steps = Value::make_array();
  for (std::int64_t i = 0; i < history.size(0) && history[i].ne(0).any().item<bool>(); ++i) {
    Value step = Value::make_array();
    const float* const numbers = history[i].const_data_ptr<float>();
    for (std::int64_t j = 0; j < history.size(1); ++j) step.push_back(Value::of(static_cast<double>(numbers[j])));
    steps.push_back(std::move(step));
  }
  return steps;
}

void set_fp8_history(nn::Fp8State& state, const Value& history) {
  at::Tensor values = at::zeros({static_cast<std::int64_t>(history.items().size()), state.maps(), 3});
  float* place = values.mutable_data_ptr<float>();
  for (const Value& step : history.items()) {
    if (static_cast<std::int64_t>(step.items().size()) != 3 * state.maps())
      throw InputError(concat(step.where().str(), ": the checkpoint has maximum values of ", step.items().size() / 3,
                              " linear maps in fp8, but this run has ", state.maps(),
                              ": set --num_layers_at_start_in_bf16 and --num_layers_at_end_in_bf16 as before"));
    for (const Value& number : step.items()) *place++ = static_cast<float>(number.as_real());
  }
  state.set_history(values.to(state.noted().device()));
}

namespace {

class Fp8Feature : public RunFeature {
 public:
  void prepare_model(ModelBuild& build) override {
    state_ = apply_fp8(build.model, build.config.optimization, build.world.device());
  }
  void begin_run(RunBegin& begin) override {
    world_ = begin.world.group();
    if (begin.world.device().is_cpu() && begin.world.rank() == 0)
      log::warning(
          "--fp8_format: on a CPU fp8 is emulated (operands are rounded to it and multiplied in fp32), which "
          "only costs time: use it to try the numerics");
    if (begin.resumed != nullptr && !begin.resumed->fp8_history.is_null())
      set_fp8_history(*state_, begin.resumed->fp8_history);
  }
  /// Discards maximum values from a trial before the first step.
  void begin_step(const StepStart&) override { state_->begin_step(); }
  /// The step's maximum values over all ranks decide the scales of later steps, once per step as in Transformer Engine.
  void after_step(const StepEnd&) override {
    if (!state_->keeps_history()) return;
    const comm::Tag tag("fp8");
    world_.all_reduce(state_->noted(), comm::Reduction::max).wait();
    state_->end_step();
  }
  void save(checkpoint::RunState& state) const override {
    if (state_->keeps_history()) state.fp8_history = fp8_history(*state_);
  }

 private:
  std::shared_ptr<nn::Fp8State> state_;
  comm::Group world_;
};

}  // namespace

std::unique_ptr<RunFeature> make_fp8(const RunConfig& config) {
  return config.optimization.fp8_format == Fp8Format::none ? nullptr : std::make_unique<Fp8Feature>();
}

}  // namespace tessera::train
