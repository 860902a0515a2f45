#include <tessera/faces/model_features.h>

#include <tessera/base/error.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/config/rules/block_routing.h>
#include <tessera/config/rules/compression.h>
#include <tessera/config/rules/validate_compression.h>
#include <tessera/config/rules/validate_fp8.h>
#include <tessera/models/checkpoint_blocks.h>

#include <utility>

namespace tessera::faces {

ModelFeatures::ModelFeatures(const std::shared_ptr<torch::nn::Module>& module, const config::Resolved& settings,
                             const comm::World& world)
    : config_(settings.values), world_(world), model_(std::dynamic_pointer_cast<models::LanguageModel>(module)) {
  config::Problems problems;
  config::validate_fp8(settings, problems);
  config::validate_compression(settings, problems);
  config::validate_block_routing(settings, problems);
  config::throw_if_any(problems);
  if (!model_) return;
  const std::string& compression = config_.optimization.compression_training;
  if (!compression.empty() && config::parse_compression(compression).layers)
    throw InputError(
        "Trainer: --compression_training: layer_reduction selects layers while `tessera train` loads a model, but "
        "this one is already loaded: remove layer_reduction");
  list_ = train::Features::of_model(config_);
  train::ModelBuild build{config_, groups_, world_, *model_, /*adapters=*/false, parts_};
  list_.each(&train::RunFeature::prepare_model, build);
}

std::vector<std::string> ModelFeatures::begin(Training& training, const train::RunPlan& plan,
                                              const data::Sampler& sampler,
                                              const std::optional<checkpoint::RunState>& resumed) {
  std::shared_ptr<const data::Dataset> no_rows;
  train::RunBegin begin{resumed ? &*resumed : nullptr, config_.output.resume_from_checkpoint, world_, no_datasets_,
                        no_rows};
  list_.each(&train::RunFeature::begin_run, begin);
  run_.emplace(train::RunContext{.config = config_,
                                 .groups = groups_,
                                 .world = world_,
                                 .plan = plan,
                                 .datasets = no_datasets_,
                                 .sampler = sampler,
                                 .model = model_,
                                 .lora = no_adapters_,
                                 .resumed = resumed.has_value(),
                                 .sharded = training.sharded(),
                                 .part_runner = models::part_runner_of(training.checkpointing())});
  list_.each(&train::RunFeature::divided, *run_);
  std::vector<std::string> notes = parts_.facts;
  list_.each(&train::RunFeature::start, notes);
  return notes;
}

void ModelFeatures::begin_micro_batch(std::int64_t first_row) {
  data::Batch batch;
  batch.first_row = first_row;
  list_.each_within_step(&train::MicroBatchFeature::begin_micro_batch, batch);
}

}  // namespace tessera::faces
