#include <tessera/faces/accelerator.h>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/deepspeed/deepspeed.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/faces/folder.h>
#include <tessera/faces/gather.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/train/loop/setup.h>

namespace tessera {
namespace {

constexpr const char* kCheckpoint = "checkpoint_";

/// DeepSpeed's JSON leaves clipping to the program: Accelerate fills in 1, our default (accelerate/accelerator.py,
/// _prepare_deepspeed).
bool fills_in_clipping(const RunConfig& config) {
  if (config.files.deepspeed.empty()) return false;
  const Value json = config::deepspeed_object(config.files.deepspeed);
  const Value* clipping = json.find("gradient_clipping");
  return clipping != nullptr && clipping->is_string() && clipping->as_string() == "auto";
}

std::string object_file(std::size_t i) { return concat("custom_checkpoint_", i, ".json"); }

}  // namespace

void set_seed(std::int64_t seed, bool device_specific, bool deterministic) {
  const int rank = initialized() ? world().rank() : launch::read_rank_environment().rank;
  at::manual_seed(static_cast<std::uint64_t>(seed + (device_specific ? rank : 0)));
  if (deterministic) at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

Accelerator::Accelerator(AcceleratorOptions options) : options_(std::move(options)) {
  std::vector<std::string> flags = options_.arguments;
  const std::string& precision = options_.mixed_precision;
  if (!precision.empty() && precision != "no" && precision != "fp16" && precision != "bf16")
    throw InputError(concat("Accelerator: mixed_precision is '", precision, "'; it must be no, fp16 or bf16"));
  if (precision == "fp16" || precision == "bf16") flags.push_back("--" + precision);
  const config::Resolved resolved = config::resolve_flags(flags);
  config_ = std::make_shared<RunConfig>(resolved.values);
  // Accelerate refuses these together with the program's own; without the latter, DeepSpeed would use these
  for (const auto& [setting, what] : {std::pair("optim", "optimizer"), std::pair("lr_scheduler_type", "schedule")})
    if (const config::Origin origin = resolved.origin(setting); origin.is_given())
      throw InputError(
          concat("Accelerator: the settings name the ", what, " (", origin.str(),
                 "), but the Accelerator uses the one passed to prepare(): remove it from the settings, or train with "
                 "tessera::initialize, which uses them"));
  if (resolved.origin("max_grad_norm").is_given() || fills_in_clipping(*config_))
    state_->max_grad_norm = config_->optimization.max_grad_norm;
  if (!precision.empty()) {  // the program's setting overrides the environment
    config_->optimization.fp16 = precision == "fp16";
    config_->optimization.bf16 = precision == "bf16";
    config_->optimization.fp8_format = Fp8Format::none;
  }
  ranks_ = faces::make_training_ranks(*config_, options_.tp_plan);
  const comm::World& ranks = world();
  rows_of_ = {ranks_.data.rank(), ranks_.data.size()};
  process_ = {ranks.rank(), ranks.local_rank(), ranks.size(), ranks.device()};
  train::set_threads(config_->parallel.threads_per_process, ranks.local_size());
  if (is_main_process())
    for (const std::string& note : resolved.notes) log::warning(note);
  accumulation_ = options_.gradient_accumulation_steps > 0 ? options_.gradient_accumulation_steps
                                                           : config_->optimization.gradient_accumulation_steps;
  state_->sync_with_dataloader = options_.sync_with_dataloader;
  state_->step_scheduler_with_optimizer = options_.step_scheduler_with_optimizer;
  state_->scheduler_steps = options_.split_batches ? 1 : rows_of_.size;
}

std::string Accelerator::mixed_precision() const {
  return config_->optimization.fp16 ? "fp16" : config_->optimization.bf16 ? "bf16" : "no";
}

Accelerator::Prepared Accelerator::prepare_all(Given given) {
  const std::size_t models = given.modules.size();
  if (models != given.updates.size())
    throw InputError(concat("Accelerator: prepare received ", models, models == 1 ? " model and " : " models and ",
                            given.updates.size(), given.updates.size() == 1 ? " optimizer" : " optimizers",
                            ": pass each model with its optimizer, both in the same order"));
  // a call without models refers to those of earlier calls
  const std::size_t unscheduled =
      models > 0 ? models
                 : static_cast<std::size_t>(std::count_if(state_->prepared.begin(), state_->prepared.end(),
                                                          [](const auto& one) { return !one->scheduled; }));
  if (given.schedules > unscheduled)
    throw InputError(concat(
        "Accelerator: prepare received ", given.schedules == 1 ? "a schedule" : "schedules", ", but ",
        models == 0 && state_->prepared.empty() ? "no model is prepared" : "every prepared model already has one",
        ": pass a schedule together with its model and optimizer, or after them"));
  std::vector<std::shared_ptr<faces::PreparedTraining>> made;
  for (std::size_t i = 0; i < models; ++i) {
    made.push_back(std::make_shared<faces::PreparedTraining>(std::move(given.modules[i]), *config_, accumulation_,
                                                             given.updates[i], ranks_));
    made.back()->training.zero_grad();
  }
  Prepared prepared;
  for (auto& one : made) {  // all or none
    if (!state_->prepared.empty()) one->training.share_loss_scale(state_->prepared.front()->training);
    prepared.trainings.push_back(one);
    state_->prepared.push_back(std::move(one));
  }
  return prepared;
}

const comm::Group& Accelerator::rows_group() const {
  world();  // throws if the job has been left
  return ranks_.data;
}

void Accelerator::take(Given& given, const OptimizerSettings& settings) const {
  RunConfig named = *config_;
  OptimizationConfig& config = named.optimization;
  if (const auto wrong = config::find_field("optim")->set(named, settings.name))
    throw InputError(concat("OptimizerSettings: name ", *wrong));
  if (const std::string wrong = config::problem_of_optimizer(config.optim, config_->parallel); !wrong.empty())
    throw InputError("OptimizerSettings: " + wrong);
  config.learning_rate = settings.lr;
  config.optim_args = settings.arguments;
  given.updates.push_back(train::configured_update(config, train::decay_everything(settings.weight_decay)));
}

DataLoader Accelerator::prepare_one(const DataLoader& loader) {
  const LoaderOptions& options = loader.options();
  state_->loaders.emplace_back(loader.source(), options,
                               faces::BatchPlan{.rows = loader.rows(),
                                                .batch_size = options.batch_size,
                                                .ranks = rows_of_.size,
                                                .drop_last = options.drop_last,
                                                .even_batches = options_.even_batches,
                                                .split_batches = options_.split_batches},
                               rows_of_.rank, device(), state_->loader_group);
  return state_->loaders.back();
}

std::shared_ptr<faces::PreparedTraining> Accelerator::next_scheduled(const Prepared& prepared) const {
  const auto& candidates = prepared.trainings.empty() ? state_->prepared : prepared.trainings;
  const auto free = std::find_if(candidates.begin(), candidates.end(), [](const auto& one) { return !one->scheduled; });
  (*free)->scheduled = true;  // prepare_all() has checked that one is free
  return *free;
}

void Accelerator::take(Given& given, const optim::Schedule& schedule) const {
  if (schedule.type == ScheduleType::reduce_lr_on_plateau)
    throw InputError(
        "Accelerator: reduce_lr_on_plateau follows evaluations, which a prepared schedule does not receive: call "
        "torch::optim::ReduceLROnPlateauScheduler of your optimizer yourself, after each evaluation");
  ++given.schedules;
}

PreparedScheduler Accelerator::give(Prepared& prepared, const optim::Schedule& schedule) const {
  const auto own = next_scheduled(prepared);
  own->training.set_schedule(train::rate_schedule(schedule));
  return PreparedScheduler(state_, own);
}

PreparedScheduler Accelerator::give(Prepared& prepared, torch::optim::LRScheduler& scheduler) const {
  const auto own = next_scheduled(prepared);
  own->torch_scheduler = &scheduler;
  return PreparedScheduler(state_, own);
}

PreparedScheduler Accelerator::prepare(const optim::Schedule& schedule) {
  Given given;
  take(given, schedule);
  Prepared none = prepare_all(std::move(given));
  return give(none, schedule);
}

PreparedScheduler Accelerator::prepare(torch::optim::LRScheduler& scheduler) {
  Given given;
  take(given, scheduler);
  Prepared none = prepare_all(std::move(given));
  return give(none, scheduler);
}

Accelerator::Scope::~Scope() noexcept(false) {
  if (leave_) leave_();
}

Accelerator::Scope Accelerator::accumulate() {
  const auto trainings = state_->trained();
  if (state_->sync_with_dataloader && state_->ending_loader() != nullptr) {
    state_->micro_steps = 0;
    state_->sync_gradients = true;
  } else {
    ++state_->micro_steps;
    state_->sync_gradients = state_->micro_steps % accumulation_ == 0;
  }
  state_->check_uneven(accumulation_);
  state_->expect_step(state_->sync_gradients);
  return Scope();
}

Accelerator::Scope Accelerator::join_uneven_inputs(std::optional<bool> even_batches) {
  faces::LoaderGroup& loaders = *state_->loader_group;
  const auto even_before = std::exchange(loaders.even_batches, even_batches ? even_batches : loaders.even_batches);
  const bool join_before = std::exchange(loaders.join, true);
  return Scope([state = state_, even_before, join_before] {
    state->loader_group->even_batches = even_before;
    state->loader_group->join = join_before;
  });
}

void Accelerator::backward(const at::Tensor& loss) {
  const auto trainings = state_->trained();
  state_->check_uneven(accumulation_);
  trainings.front()->backward(has_joined() ? loss * 0 : loss);  // from any model: all have the same settings
  for (faces::Training* training : trainings) training->gradients_changed();
}

Accelerator::Scope Accelerator::expecting(bool step) {
  return Scope([state = state_, before = state_->expect_step(step)] {
    if (!state->prepared.empty()) state->expect_step(before);
  });
}

double Accelerator::clip_grad_norm_(double max_norm) {
  if (!sync_gradients()) return 0;
  const auto trainings = state_->trained();
  if (trainings.size() == 1) return trainings.front()->clip(max_norm);
  double squares = 0;
  for (faces::Training* training : trainings) squares += training->gradient_norm() * training->gradient_norm();
  for (faces::Training* training : trainings) training->clip_by(std::sqrt(squares), max_norm);
  return std::sqrt(squares);
}

void Accelerator::clip_grad_value_(double limit) {
  if (!sync_gradients()) return;
  for (faces::Training* training : state_->trained()) training->clip_values(limit);
}

bool Accelerator::optimizer_step_was_skipped() const {
  return std::any_of(state_->prepared.begin(), state_->prepared.end(),
                     [](const auto& one) { return one->step_was_skipped; });
}

DistributedType Accelerator::distributed_type() const {
  const StrategyRow& strategy = row_of(config_->sharding.strategy);
  if (!strategy.shard_optimizer)
    return !use_distributed()   ? DistributedType::no
           : !device().is_cpu() ? DistributedType::multi_gpu
                                : DistributedType::multi_cpu;
  const std::string_view name = word_of(config_->sharding.strategy);
  if (name.starts_with("zero")) return DistributedType::deepspeed;
  return use_distributed() ? DistributedType::fsdp : DistributedType::no;
}

void Accelerator::forget() {
  state_->prepared.clear();
  state_->loaders.clear();
  state_->micro_steps = 0;
  state_->sync_gradients = state_->expects_step = true;
}

at::Tensor Accelerator::gather(const at::Tensor& tensor) const { return faces::gather_rows(rows_group(), tensor); }

std::vector<at::Tensor> Accelerator::gather(const std::vector<at::Tensor>& tensors) const {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : tensors) all.push_back(gather(tensor));
  return all;
}

std::vector<Value> Accelerator::gather_object(const std::vector<Value>& objects) const {
  std::vector<Value> all;
  for (const std::string& text : comm::all_gather_text(rows_group(), dump_json(Value::make_array(objects)))) {
    const Value of_rank = parse_json(text, "gather_object");
    all.insert(all.end(), of_rank.items().begin(), of_rank.items().end());
  }
  return all;
}

std::vector<std::string> Accelerator::gather_object(const std::vector<std::string>& texts) const {
  std::vector<Value> objects;
  for (const std::string& text : texts) objects.push_back(Value::of(text));
  std::vector<std::string> all;
  for (const Value& item : gather_object(objects)) all.push_back(item.as_string());
  return all;
}

at::Tensor Accelerator::gather_for_metrics(const at::Tensor& tensor) const {
  const at::Tensor rows = tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
  const at::Tensor all = gather(has_joined() ? rows.narrow(0, 0, 0) : rows);
  const faces::LoaderState* ending = state_->ending_loader();
  if (ending == nullptr || ending->remainder == 0 || all.size(0) <= ending->remainder || tensor.dim() == 0) return all;
  return all.narrow(0, 0, ending->remainder);
}

std::vector<at::Tensor> Accelerator::gather_for_metrics(const std::vector<at::Tensor>& tensors) const {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : tensors) all.push_back(gather_for_metrics(tensor));
  return all;
}

at::Tensor Accelerator::pad_across_processes(const at::Tensor& tensor, std::int64_t dim, double pad_index,
                                             bool pad_first) const {
  if (dim >= tensor.dim() || dim < -tensor.dim()) return tensor;
  if (dim < 0) dim += tensor.dim();
  const at::Tensor longest = at::full({1}, tensor.size(dim), at::TensorOptions().dtype(at::kLong).device(device()));
  rows_group().all_reduce(longest, comm::Reduction::max).wait();
  auto sizes = tensor.sizes().vec();
  sizes.at(static_cast<std::size_t>(dim)) = longest.item<std::int64_t>() - tensor.size(dim);
  const at::Tensor padding = at::full(sizes, pad_index, tensor.options());
  return pad_first ? at::cat({padding, tensor}, dim) : at::cat({tensor, padding}, dim);
}

at::Tensor Accelerator::broadcast(const at::Tensor& tensor, int from_process) const {
  const at::Tensor own = tensor.detach().to(device()).clone().contiguous();
  world().group().broadcast(own, from_process).wait();
  return own;
}

at::Tensor Accelerator::reduce(const at::Tensor& tensor, comm::Reduction op, double scale) const {
  const at::Tensor own = tensor.detach().to(device()).clone().contiguous();
  rows_group().all_reduce(own, op).wait();
  return scale == 1 ? own : own * scale;
}

void Accelerator::save(const StateDict& tensors, const std::string& path) const {
  if (is_main_process()) faces::write_state_dict(tensors, path);
}

void Accelerator::init_trackers(const std::string& project_name, const Value& config) {
  std::vector<std::shared_ptr<Tracker>> begun = options_.trackers;
  for (const std::string& name : options_.log_with) begun.push_back(faces::make_tracker(name, logging_dir()));
  if (!is_main_process()) return;
  for (const auto& tracker : begun) tracker->start(project_name, config);
  trackers_ = std::move(begun);
}

void Accelerator::log(const Value& values, std::optional<std::int64_t> step) {
  faces::check_logged(values);
  for (const auto& tracker : trackers_) tracker->log(values, step.value_or(logged_));
  ++logged_;
}

void Accelerator::end_training() {
  for (const auto& tracker : trackers_) tracker->finish();
  trackers_.clear();
  shutdown();
}

std::string Accelerator::checkpoints_folder() const {
  if (options_.project_dir.empty())
    throw InputError("Accelerator: save_state and load_state without a folder need AcceleratorOptions::project_dir");
  return path_join(options_.project_dir, "checkpoints");
}

std::string Accelerator::save_state(const std::string& folder) {
  const auto trainings = state_->trained();
  std::string target = folder;
  if (target.empty()) {
    const auto old = checkpoint::step_folders(checkpoints_folder(), kCheckpoint);
    target = path_join(checkpoints_folder(), concat(kCheckpoint, old.empty() ? 0 : old.front().step + 1));
    wait_for_everyone();  // all ranks have looked before rank 0 writes
  }
  checkpoint::RunState state{.step = trainings[0]->update().steps(), .models = {}};
  state.micro_steps = state_->micro_steps;
  state.custom_objects = static_cast<std::int64_t>(objects_.size());
  for (const DataLoader& loader : state_->loaders) state.loader_epochs.push_back(loader.state().epoch);
  for (const auto& one : state_->prepared)
    state.models.push_back({.torch_scheduler_steps = one->torch_scheduler_steps});
  faces::JsonFiles files;
  comm::run_on_all_ranks(world().group(), [&] {  // a rank that fails must not leave the others waiting in the save
    for (std::size_t i = 0; i < objects_.size(); ++i) files.emplace_back(object_file(i), objects_[i]->state());
  });
  faces::save_training(trainings, target, trainings[0]->saves_whole(), std::move(state), files);
  if (folder.empty() && options_.total_limit > 0)
    comm::run_on_all_ranks(world().group(), [&] {
      if (!is_main_process()) return;
      const auto all = checkpoint::step_folders(checkpoints_folder(), kCheckpoint);
      for (auto i = static_cast<std::size_t>(options_.total_limit); i < all.size(); ++i)
        if (path_exists(path_join(all[i].path, format::kManifestName))) checkpoint::remove_checkpoint(all[i].path);
    });
  return target;
}

void Accelerator::load_state(const std::string& folder) {
  const auto trainings = state_->trained();
  std::string source = folder;
  if (source.empty()) {
    const auto all = checkpoint::step_folders(checkpoints_folder(), kCheckpoint);
    if (all.empty()) throw InputError(concat(checkpoints_folder(), ": contains no ", kCheckpoint, "N to load"));
    source = all.front().path;
  }
  comm::run_on_all_ranks(world().group(), [&] {  // before anything changes
    const checkpoint::RunState run = checkpoint::read_run_state(source);
    const std::int64_t saved = run.custom_objects;
    if (saved != static_cast<std::int64_t>(objects_.size()))
      throw InputError(concat(source, ": was saved with ", saved, " objects registered for checkpointing, but ",
                              objects_.size(), " are registered: register the same ones, in the same order"));
    for (std::size_t i = 0; i < std::min(run.models.size(), state_->prepared.size()); ++i) {
      const faces::PreparedTraining& own = *state_->prepared[i];
      const std::int64_t steps = run.models[i].torch_scheduler_steps;
      if (own.torch_scheduler != nullptr && own.torch_scheduler_steps > steps)
        throw InputError(
            concat(source, ": was saved after ", steps, " steps of the LRScheduler of model ", i,
                   ", but this one has taken ", own.torch_scheduler_steps,
                   ", and torch's schedulers cannot be rewound: create the optimizer and its LRScheduler again, "
                   "prepare them, and then load"));
      if (own.torch_scheduler == nullptr && steps > 0 && is_main_process())
        log::warning(
            source, ": was saved after ", steps, " steps of an LRScheduler of model ", i,
            ", which has no scheduler here: its learning rates follow no schedule unless you prepare one before "
            "load_state");
    }
  });
  const checkpoint::RunState state = faces::load_training(trainings, source);
  comm::run_on_all_ranks(world().group(), [&] {
    for (std::size_t i = 0; i < objects_.size(); ++i)
      objects_[i]->load_state(read_json(path_join(source, object_file(i))));
    for (std::size_t i = 0; i < std::min(state.loader_epochs.size(), state_->loaders.size()); ++i)
      state_->loaders[i].set_epoch(state.loader_epochs[i]);
  });
  state_->micro_steps = state.micro_steps;
  for (std::size_t i = 0; i < state_->prepared.size(); ++i) {
    faces::PreparedTraining& own = *state_->prepared[i];
    if (own.torch_scheduler == nullptr) continue;  // torch schedulers only count steps, so they can be advanced
    for (; own.torch_scheduler_steps < state.models[i].torch_scheduler_steps; ++own.torch_scheduler_steps)
      own.torch_scheduler->step();
  }
}

void Accelerator::save_model(const std::string& folder, std::int64_t max_shard_bytes) {
  const auto trainings = state_->trained();
  if (trainings.size() > 1)
    throw InputError(concat("Accelerator: save_model: there are ", trainings.size(),
                            " models: name the one to save, save_model(model, folder)"));
  save_weights(*trainings.front(), folder, max_shard_bytes);
}

void Accelerator::save_weights(faces::Training& training, const std::string& folder, std::int64_t max_shard_bytes) {
  faces::save_weights(training, folder, max_shard_bytes);
}

Accelerator::Scope Accelerator::goes_first(bool first) const {
  if (!first) {
    wait_for_everyone();
    return Scope();
  }
  return Scope([this, unwinding = std::uncaught_exceptions()] {
    if (std::uncaught_exceptions() == unwinding) wait_for_everyone();  // otherwise the launcher ends the others
  });
}

std::pair<std::int64_t, std::int64_t> Accelerator::share(std::int64_t items) const {
  const std::int64_t each = items / rows_of_.size, extras = items % rows_of_.size, rank = rows_of_.rank;
  const std::int64_t begin = rank * each + std::min(rank, extras);
  return {begin, begin + each + (rank < extras ? 1 : 0)};
}

bool Accelerator::check_trigger() { return comm::any_rank(world().group(), std::exchange(trigger_, false)); }

void Accelerator::print_line(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace tessera
