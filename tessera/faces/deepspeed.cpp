#include <tessera/faces/deepspeed.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/comm/agree.h>
#include <tessera/comm/world.h>
#include <tessera/config/deepspeed/deepspeed.h>
#include <tessera/faces/folder.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/loop/setup.h>

namespace tessera::faces {
namespace {

constexpr const char* kLatest = "latest";

/// The file alone as DeepSpeed reads it; with arguments besides, "auto" is filled from them as Hugging Face's Trainer
/// does.
config::Resolved resolve(const InitializeOptions& options, int ranks) {
  if (!options.config.empty() && options.arguments.empty()) {
    config::Problems problems;
    config::Resolved resolved = config::resolve_deepspeed(options.config, ranks, problems);
    config::throw_if_any(problems);
    return resolved;
  }
  std::vector<std::string> flags = options.arguments;
  if (!options.config.empty()) flags.push_back("--deepspeed=" + options.config);
  flags.push_back(concat("--num_processes=", ranks));
  return config::resolve_flags(flags);
}

int ranks_of(const InitializeOptions& options) {
  return options.group   ? options.group.size()
         : initialized() ? world().size()
                         : launch::read_rank_environment().world_size;
}

/// The schedule that the options mean; none: the learning rate stays, as in DeepSpeed (Hugging Face's linear decay is
/// not its default).
train::RateSchedule schedule_of(const InitializeOptions& options, const config::Resolved& resolved) {
  if (options.lr_lambda)
    return {[factor = options.lr_lambda](std::int64_t steps, double base) { return base * factor(steps); }};
  if (resolved.is_default("lr_scheduler_type")) return {};
  const OptimizationConfig& config = resolved.values.optimization;
  using Type = ScheduleType;
  static const std::set<Type> ending = {Type::linear,
                                        Type::cosine,
                                        Type::polynomial,
                                        Type::cosine_with_restarts,
                                        Type::cosine_with_min_lr,
                                        Type::warmup_stable_decay};
  if (config.max_steps <= 0 && ending.contains(config.lr_scheduler_type))
    throw InputError(concat("lr_scheduler_type ", config.lr_scheduler_type,
                            " needs the number of steps of the run: give --max_steps"));
  if (config.lr_scheduler_type == Type::reduce_lr_on_plateau)
    throw InputError(
        "lr_scheduler_type reduce_lr_on_plateau follows evaluations, which only tessera::Trainer and tessera train "
        "make: take another schedule");
  train::RunPlan plan;
  plan.total_steps = std::max<std::int64_t>(config.max_steps, 0);
  plan.warmup_steps = train::warmup_steps(config, plan.total_steps);
  return train::rate_schedule(train::make_schedule(config, plan));
}

std::unique_ptr<Training> make_training(std::shared_ptr<torch::nn::Module> module, const InitializeOptions& options) {
  const config::Resolved resolved = resolve(options, ranks_of(options));
  const RunConfig& config = resolved.values;
  const comm::World& ranks = ensure_world(config);
  train::set_threads(config.parallel.threads_per_process, ranks.local_size());
  if (ranks.rank() == 0)
    for (const std::string& note : resolved.notes) log::warning(note);
  const train::MakeUpdate update =
      options.optimizer != nullptr
          ? train::torch_update(*options.optimizer)
          : train::configured_update(config.optimization, train::decay_everything(config.optimization.weight_decay));
  auto training = std::make_unique<Training>(std::move(module), config, config.optimization.gradient_accumulation_steps,
                                             update, options.group);
  training->set_schedule(schedule_of(options, resolved));
  return training;
}

}  // namespace

RunConfig read_configuration(const InitializeOptions& options, int ranks) { return resolve(options, ranks).values; }

DeepSpeedEngine::DeepSpeedEngine(std::shared_ptr<torch::nn::Module> module, const InitializeOptions& options)
    : training_(make_training(std::move(module), options)) {
  training_->module().train();
  training_->zero_grad();
  training_->expect_step(is_gradient_accumulation_boundary());
}

void DeepSpeedEngine::backward(const at::Tensor& loss) { training_->backward(loss); }

void DeepSpeedEngine::step() {
  applied_ = false;
  const bool boundary = is_gradient_accumulation_boundary();
  ++micro_steps_;
  if (boundary) {
    grad_norm_ = training_->clip(gradient_clipping());
    applied_ = training_->step();
    training_->zero_grad();
    if (applied_) training_->step_schedule();
    ++global_steps_;
  }
  training_->expect_step(is_gradient_accumulation_boundary());
}

int DeepSpeedEngine::zero_optimization_stage() const {
  return row_of(training_->config().sharding.strategy).zero_stage();
}

DataLoader DeepSpeedEngine::deepspeed_io(RowSource source, bool shuffle, bool drop_last) const {
  const std::int64_t rows = source.rows, micro = train_micro_batch_size_per_gpu();
  return DataLoader(std::move(source),
                    {.batch_size = micro,
                     .shuffle = shuffle,
                     .seed = static_cast<std::uint64_t>(training_->config().optimization.seed),
                     .drop_last = drop_last},
                    {.rows = rows, .batch_size = micro, .ranks = dp_world_size(), .drop_last = drop_last},
                    training_->group().rank(), training_->group().device());
}

std::string DeepSpeedEngine::save_checkpoint(const std::string& folder, const std::string& tag,
                                             const Value& client_state) {
  const std::string name = tag.empty() ? concat("global_step", global_steps_) : tag;
  comm::require_equal(training_->group(), "save_checkpoint: the tag", name, "all ranks must give the same");
  const std::string path = path_join(folder, name);
  save_training({training_.get()}, path, training_->saves_whole(),
                {.step = global_steps_, .client_state = client_state});
  comm::agree(training_->group(), [&] {
    if (training_->group().rank() == 0) write_file_atomically(path_join(folder, kLatest), name + "\n");
  });
  return path;
}

std::optional<DeepSpeedEngine::Loaded> DeepSpeedEngine::load_checkpoint(const std::string& folder,
                                                                        const std::string& tag,
                                                                        const LoadOptions& options) {
  const std::string latest = path_join(folder, kLatest);
  const std::string name = !tag.empty() ? tag : path_exists(latest) ? trim(read_file(latest)) : "";
  comm::require_equal(training_->group(), "load_checkpoint: the tag", name, "all ranks must give the same");
  if (name.empty()) {
    if (training_->group().rank() == 0)
      log::warning("load_checkpoint: ", latest,
                   " does not exist, so nothing was loaded; name a tag if there is a checkpoint");
    return std::nullopt;
  }
  Loaded loaded{path_join(folder, name), {}};
  const checkpoint::RunState state =
      load_training({training_.get()}, loaded.path, options.load_optimizer_states, options.load_random_states);
  loaded.client_state = state.client_state;
  if (options.load_optimizer_states) {
    global_steps_ = state.step;
    micro_steps_ = global_steps_ * gradient_accumulation_steps();  // which may be others now
    training_->expect_step(is_gradient_accumulation_boundary());
  }
  return loaded;
}

void DeepSpeedEngine::save_model(const std::string& folder) {
  save_weights(*training_, folder, std::int64_t{10} << 30);
}

}  // namespace tessera::faces
