#include <tessera/faces/deepspeed.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/config/deepspeed/deepspeed.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/faces/folder.h>
#include <tessera/nn/gemm.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/loop/setup.h>

namespace tessera {

ConfigArguments add_config_arguments(std::vector<std::string>& arguments) {
  ConfigArguments found;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (argument == "--deepspeed") {
      found.deepspeed = true;
    } else if (name == "--deepspeed_config" || name == "--local_rank" || name == "--local-rank") {
      if (equals == std::string::npos && i + 1 == arguments.size()) throw InputError(concat(name, " needs a value"));
      const std::string value = equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
      if (name == "--deepspeed_config") {
        found.deepspeed_config = value;
      } else {
        const auto number = parse_int(value);
        if (!number) throw InputError(concat(name, " is '", value, "', not a number"));
        found.local_rank = static_cast<int>(*number);
      }
    } else {
      rest.push_back(argument);
    }
  }
  arguments = std::move(rest);
  return found;
}

comm::World& init_distributed(const InitOptions& options) { return initialized() ? world() : init(options); }

}  // namespace tessera

namespace tessera::faces {
namespace {

constexpr const char* kLatest = "latest";

/// Reads the file alone like DeepSpeed; with additional arguments, fills "auto" from them like Hugging Face's Trainer.
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

/// The schedule of the options; empty: the learning rate is constant, as in DeepSpeed (whose default is not Hugging
/// Face's linear decay).
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
                            " needs the number of steps of the run: set --max_steps"));
  if (config.lr_scheduler_type == Type::reduce_lr_on_plateau)
    throw InputError(
        "lr_scheduler_type reduce_lr_on_plateau follows evaluations, which only tessera::Trainer and tessera train "
        "run: choose another schedule");
  train::RunPlan plan;
  plan.total_steps = std::max<std::int64_t>(config.max_steps, 0);
  plan.warmup_steps = train::warmup_steps(config, plan.total_steps);
  return train::rate_schedule(train::make_schedule(config, plan));
}

/// For the file's own bf16 (not torch_autocast's) DeepSpeed makes the module's weights bf16, and its optimizer keeps
/// fp32 ones (deepspeed/runtime/engine.py, _configure_distributed_model: module.bfloat16()).
bool makes_weights_bf16(const RunConfig& config) {
  if (config.files.deepspeed.empty() || !config.optimization.bf16) return false;
  const Value json = config::deepspeed_object(config.files.deepspeed);
  for (const char* name : {"bf16", "bfloat16"})
    if (const Value* section = json.find(name); section != nullptr && section->is_object())
      if (const Value* enabled = section->find("enabled"))
        return enabled->is_string() || enabled->as_bool();  // "auto": it was filled with bf16
  return false;
}

std::shared_ptr<Training> make_training(std::shared_ptr<torch::nn::Module> module, const InitializeOptions& options,
                                        bool& scheduled) {
  const config::Resolved resolved = resolve(options, ranks_of(options));
  RunConfig config = resolved.values;
  TrainingRanks groups = make_training_ranks(config, options.tp_plan, options.group);
  const comm::World& ranks = world();
  if (makes_weights_bf16(config) && (!ranks.device().is_cpu() || nn::has_instructions(at::kBFloat16)))
    config.sharding.param_dtype = FloatType::bf16;
  train::set_threads(config.parallel.threads_per_process, ranks.local_size());
  if (ranks.rank() == 0)
    for (const std::string& note : resolved.notes) log::warning(note);
  const train::MakeUpdate update =
      options.optimizer != nullptr
          ? train::torch_update(*options.optimizer)
          : train::configured_update(config.optimization, train::decay_everything(config.optimization.weight_decay));
  auto training = std::make_shared<Training>(std::move(module), config, config.optimization.gradient_accumulation_steps,
                                             update, std::move(groups));
  train::RateSchedule schedule = schedule_of(options, resolved);
  scheduled = schedule.rate != nullptr;
  training->set_schedule(std::move(schedule));
  return training;
}

/// Placeholder if initialize() was given no data: reading it throws an explanation.
DataLoader no_loader() {
  return DataLoader({.rows = 1,
                     .read = [](const auto&) -> std::vector<at::Tensor> {
                       throw InputError(
                           "initialize received no training_data, so the loader that it returned is empty: set "
                           "InitializeOptions::training_data, or use your own loader");
                     }},
                    {.batch_size = 1});
}

}  // namespace

Training& of_engine(const std::weak_ptr<Training>& training) {
  if (const auto held = training.lock()) return *held;  // the engine holds it too, so it stays alive
  throw InputError("the engine of this object was destroyed: call initialize again");
}

RunConfig read_configuration(const InitializeOptions& options, int ranks) { return resolve(options, ranks).values; }

DeepSpeedEngine::DeepSpeedEngine(std::shared_ptr<torch::nn::Module> module, const InitializeOptions& options)
    : training_(make_training(std::move(module), options, scheduled_)), loader_(no_loader()) {
  if (options.training_data)
    loader_ = deepspeed_io(*options.training_data, /*shuffle=*/true, training().config().data.dataloader_drop_last);
  training().module().train();
  training().zero_grad();
  training().expect_step(is_gradient_accumulation_boundary());
}

Training& DeepSpeedEngine::training() const {
  if (!training_) throw InputError("the engine was destroyed: call initialize again");
  return *training_;
}

void DeepSpeedEngine::set_gradient_accumulation_boundary(bool is_boundary) {
  boundary_ = is_boundary;
  if (!inside_no_sync_) training().expect_step(is_boundary);
}

void DeepSpeedEngine::set_train_batch_size(std::int64_t train_batch_size) {
  const std::int64_t round = train_micro_batch_size_per_gpu() * dp_world_size();
  if (train_batch_size < 1 || train_batch_size % round != 0)
    throw InputError(concat("set_train_batch_size: ", train_batch_size, " rows are not a multiple of ", round,
                            ": micro-batches of ", train_micro_batch_size_per_gpu(), " on ", dp_world_size(),
                            " ranks"));
  if (!boundary_ && (micro_steps_ - begun_) % gradient_accumulation_steps() != 0)
    throw InputError(
        concat("set_train_batch_size: ", (micro_steps_ - begun_) % gradient_accumulation_steps(), " of ",
               gradient_accumulation_steps(),
               " micro-batches of the step are done, with losses divided by the old number: call it between steps"));
  training().set_accumulation(train_batch_size / round);
  // makes the next micro-batch the first of its step, regardless of the count so far
  begun_ = micro_steps_;
  training().expect_step(is_gradient_accumulation_boundary());
}

DeepSpeedEngine::NoSync::NoSync(DeepSpeedEngine& engine) : engine_(engine) {
  if (engine.zero_optimization_stage() >= 2)
    throw InputError(concat("no_sync: ZeRO-", engine.zero_optimization_stage(),
                            " divides the gradients of each backward over the ranks immediately, so none can be kept: "
                            "use stage 0 or 1, or gradient_accumulation_steps"));
  if (std::exchange(engine.inside_no_sync_, true)) throw InputError("no_sync: another scope is already open");
  engine.training().expect_step(false);
}

DeepSpeedEngine::NoSync::~NoSync() {
  engine_.inside_no_sync_ = false;
  if (engine_.training_) engine_.training_->expect_step(engine_.is_gradient_accumulation_boundary());
}

void DeepSpeedEngine::destroy() {
  training().make_whole();
  training_.reset();
  loader_ = no_loader();
}

void DeepSpeedEngine::backward(const at::Tensor& loss) { training().backward(loss); }

void DeepSpeedEngine::step() {
  if (inside_no_sync_) throw InputError("engine.step() inside no_sync(): end its scope first");
  applied_ = false;
  const bool boundary = is_gradient_accumulation_boundary();
  ++micro_steps_;
  if (boundary) {
    grad_norm_ = training().clip(gradient_clipping());
    applied_ = training().step();
    training().zero_grad();
    if (applied_) training().step_schedule();
    ++global_steps_;
  }
  training().expect_step(is_gradient_accumulation_boundary());
}

std::int64_t DeepSpeedEngine::train_micro_batch_size_per_gpu() const {
  return training().config().optimization.per_device_train_batch_size;
}

double DeepSpeedEngine::gradient_clipping() const { return training().config().optimization.max_grad_norm; }

bool DeepSpeedEngine::fp16_enabled() const { return training().config().optimization.fp16; }

bool DeepSpeedEngine::bfloat16_enabled() const { return training().config().optimization.bf16; }

int DeepSpeedEngine::zero_optimization_stage() const {
  return row_of(training().config().sharding.strategy).zero_stage();
}

DataLoader DeepSpeedEngine::deepspeed_io(RowSource source, bool shuffle, bool drop_last) const {
  const std::int64_t rows = source.rows, micro = train_micro_batch_size_per_gpu();
  return DataLoader(std::move(source),
                    {.batch_size = micro,
                     .shuffle = shuffle,
                     .seed = static_cast<std::uint64_t>(training().config().optimization.seed),
                     .drop_last = drop_last},
                    {.rows = rows, .batch_size = micro, .ranks = dp_world_size(), .drop_last = drop_last},
                    training().group().rank(), training().group().device());
}

std::string DeepSpeedEngine::save_checkpoint(const std::string& folder, const std::string& tag,
                                             const Value& client_state) {
  const std::string name = tag.empty() ? concat("global_step", global_steps_) : tag;
  comm::require_equal(training().all(), "save_checkpoint: the tag", name, "all ranks must pass the same one");
  const std::string path = path_join(folder, name);
  save_training({training_.get()}, path, training().saves_whole(),
                {.step = global_steps_, .client_state = client_state});
  comm::run_on_all_ranks(training().all(), [&] {
    if (training().all().rank() == 0) write_file_atomically(path_join(folder, kLatest), name + "\n");
  });
  return path;
}

std::optional<DeepSpeedEngine::Loaded> DeepSpeedEngine::load_checkpoint(const std::string& folder,
                                                                        const std::string& tag,
                                                                        const LoadOptions& options) {
  const std::string latest = path_join(folder, kLatest);
  const std::string name = !tag.empty() ? tag : path_exists(latest) ? trim(read_file(latest)) : "";
  comm::require_equal(training().all(), "load_checkpoint: the tag", name, "all ranks must pass the same one");
  if (name.empty()) {
    if (training().all().rank() == 0)
      log::warning("load_checkpoint: ", latest,
                   " does not exist, so nothing was loaded; pass a tag if there is a checkpoint");
    return std::nullopt;
  }
  Loaded loaded{path_join(folder, name), {}};
  const checkpoint::RunState state =
      load_training({training_.get()}, loaded.path, options.load_optimizer_states, options.load_random_states);
  loaded.client_state = state.client_state;
  if (options.load_optimizer_states) {
    global_steps_ = state.step;
    begun_ = micro_steps_ = global_steps_ * gradient_accumulation_steps();  // may have changed since the save
  } else {
    begun_ = micro_steps_;  // loading clears the gradients of an unfinished step
  }
  training().expect_step(is_gradient_accumulation_boundary());
  return loaded;
}

void DeepSpeedEngine::save_model(const std::string& folder) {
  save_weights(training(), folder, std::int64_t{10} << 30);
}

}  // namespace tessera::faces
