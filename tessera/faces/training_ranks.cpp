#include <tessera/faces/training_ranks.h>

#include <ATen/ATen.h>

#include <array>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/comm/world.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>
#include <tessera/models/language_model.h>
#include <tessera/models/tensor_plans.h>
#include <tessera/train/core/run_groups.h>

namespace tessera::faces {
namespace {

comm::World& joined_world(const RunConfig& config) {
  if (initialized()) {
    if (config.device == Device::cuda && world().device().is_cpu())
      throw InputError(
          "--device cuda is set, but tessera::init() has put this process on the CPU: pass cuda as "
          "InitOptions::device, or leave that unset so that the settings decide");
    return world();
  }
  InitOptions options;
  options.backend = config.parallel.backend;
  options.device = config.device;
  options.timeout_seconds = config.parallel.ddp_timeout;
  return init(options);
}

}  // namespace

std::span<const RefusedAxis> refused_axes() {
  static constexpr auto axes = std::to_array<RefusedAxis>(
      {{"pp_size",
        "a pipeline runs the loop of its micro-batches itself: `tessera train --pp_size`, or tessera::PipelineParallel "
        "around the stages of your module (examples/pipeline.cpp)"},
       {"cp_size",
        "rows, their positions and their labels must be cut before your forward and your loss see them: `tessera train "
        "--cp_size`, or context_attention in your module's forward (docs/parallelism.md)"},
       {"ep_size",
        "your module decides where its experts are: `tessera train --ep_size`, or a tessera::Experts layer in your "
        "module (docs/parallelism.md)"},
       {"etp_size", "it divides the experts of a mixture: `tessera train --etp_size`"}});
  return axes;
}

void check_axes(const ParallelConfig& parallel) {
  RunConfig given;
  given.parallel = parallel;
  const RunConfig defaults;
  for (const auto& [setting, remedy] : refused_axes()) {
    const config::Field& field = *config::find_field(setting);
    const std::string value = dump_json(field.get(given));
    if (value != dump_json(field.get(defaults)))
      throw InputError(
          concat(setting, " ", value,
                 " is not supported by tessera's Accelerator, DeepSpeed engine and Trainer, which support tp_size, "
                 "sequence_parallel and all strategies: ",
                 remedy));
  }
}

TrainingRanks make_training_ranks(const RunConfig& config, layout::TensorPlan plan, comm::Group given) {
  const ParallelConfig& parallel = config.parallel;
  check_axes(parallel);
  if (given && parallel.tp_size > 1)
    throw InputError(
        concat("tp_size ", parallel.tp_size,
               " creates the group of data-parallel ranks itself: do not pass a group here, or keep tp_size "
               "at 1 and put TensorParallel around the module (parallel/tensor_parallel.h)"));
  if (!plan.empty() && parallel.tp_size == 1)
    throw InputError("a tp_plan is set, but tp_size is 1, so nothing is cut: set --tp_size, or remove the plan");
  comm::World& ranks = joined_world(config);
  if (parallel.tp_size == 1) {
    const comm::Group all = given ? given : ranks.group();
    return {.all = all, .data = all, .tensor = {}};
  }
  const train::RunGroups groups = train::make_run_groups(config, ranks);
  return {.all = ranks.group(), .data = groups.data, .tensor = groups.tensor, .plan = std::move(plan)};
}

layout::TensorPlan plan_of(const TrainingRanks& ranks, const torch::nn::Module& module) {
  const auto* const model = dynamic_cast<const models::LanguageModel*>(&module);
  if (model != nullptr && model->balance().experts > 0)
    throw InputError(concat(
        "tp_size ", ranks.tensor.size(),
        " around a mixture of experts: its routers and experts need a grid "
        "of their own, which only `tessera train --tp_size` creates; here keep tp_size at 1 and shard it with --fsdp "
        "full_shard"));
  if (!ranks.plan.empty()) return ranks.plan;
  if (model != nullptr) return models::tensor_plan(*model);
  throw InputError(concat("tp_size ", ranks.tensor.size(), ": there is no plan for cutting the module ", module.name(),
                          ": set tp_plan in the options, {{\"query\", TensorStyle::colwise}, ...} "
                          "(docs/parallelism.md), or keep tp_size at 1 and shard it with --fsdp full_shard"));
}

void share_values(const torch::nn::Module& module, const comm::Group& group) {
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.has_storage() || parameter.storage().nbytes() == 0 || parameter.numel() == 0) continue;
    const at::Tensor values = parameter.detach().contiguous();
    group.broadcast(values, 0).wait();
    if (!parameter.is_contiguous()) parameter.detach().copy_(values);
  }
}

}  // namespace tessera::faces
