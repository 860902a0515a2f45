#include <tessera/checkpoint/run_state.h>

#include <charconv>
#include <system_error>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/files.h>

namespace tessera::checkpoint {
namespace {

constexpr const char* kFormatWord = "tessera-state-1";
constexpr const char* kOldFaceStateFile = "state.json";

std::uint64_t parse_seed(const Value& value) {
  const std::string& text = value.as_string();
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InputError(concat(value.where().str(), ": seed '", text, "' is not an integer from 0 to 2^64 - 1"));
  }
  return seed;
}

std::int64_t count_at(const Value& object, const char* key) {
  const std::int64_t count = object.at(key).as_int();
  if (count < 0) throw InputError(concat(object.at(key).where().str(), ": ", key, " is ", count, "; it must be >= 0"));
  return count;
}

/// `key` of `object`, or 0 if it is missing.
std::int64_t count_or_0(const Value& object, const char* key) {
  return object.find(key) != nullptr ? count_at(object, key) : 0;
}

void add_model(Value& object, const ModelState& model) {
  object.set("optimizer_steps", Value::of(model.optimizer_steps));
  object.set("schedule_steps", Value::of(model.schedule_steps));
  if (model.torch_scheduler_steps > 0) object.set("torch_scheduler_steps", Value::of(model.torch_scheduler_steps));
  if (!model.schedule.is_null()) object.set("schedule", model.schedule);
  if (model.loss_scale)
    object.set("loss_scale", Value::make_object({{"scale", Value::of(model.loss_scale->scale)},
                                                 {"good_steps", Value::of(model.loss_scale->good_steps)},
                                                 {"skipped_steps", Value::of(model.loss_scale->skipped_steps)},
                                                 {"hysteresis", Value::of(model.loss_scale->hysteresis)}}));
}

/// `steps`: steps of the run; if the file does not contain schedule steps, they are these minus the skipped ones.
ModelState read_model(const Value& object, std::int64_t steps) {
  ModelState model;
  model.optimizer_steps = count_at(object, "optimizer_steps");
  model.torch_scheduler_steps = count_or_0(object, "torch_scheduler_steps");
  if (const Value* schedule = object.find("schedule")) model.schedule = *schedule;
  if (const Value* scale = object.find("loss_scale"))
    model.loss_scale = {.scale = scale->at("scale").as_real(),
                        .good_steps = count_at(*scale, "good_steps"),
                        .skipped_steps = count_at(*scale, "skipped_steps"),
                        .hysteresis = count_or_0(*scale, "hysteresis")};
  model.schedule_steps = object.find("schedule_steps") != nullptr
                             ? count_at(object, "schedule_steps")
                             : steps - (model.loss_scale ? model.loss_scale->skipped_steps : 0);
  return model;
}

/// Reads the models: the first one from `object` itself, the others from "more".
void read_models(RunState& state, const Value& object) {
  state.models = {read_model(object, state.step)};
  if (const Value* more = object.find("more"))
    for (const Value& model : more->items()) state.models.push_back(read_model(model, state.step));
}

/// Reads the faces' state.json, the format before tessera_state.json (until November 2026).
RunState read_old_face_state(const Value& own) {
  RunState state;
  state.trainer_state = false;
  const Value& counts = own.at("state");
  state.step = count_or_0(counts, counts.find("global_steps") != nullptr ? "global_steps" : "step");
  state.samples = count_or_0(counts, "samples");
  state.micro_steps = count_or_0(counts, "micro_steps");
  state.custom_objects = count_or_0(counts, "objects");
  read_models(state, own);
  if (const Value* client = counts.find("client_state")) state.client_state = *client;
  if (const Value* plateau = counts.find("plateau")) state.models[0].schedule = *plateau;
  if (const Value* epochs = counts.find("loader_epochs"))
    for (const Value& epoch : epochs->items()) state.loader_epochs.push_back(epoch.as_int());
  if (const Value* steps = counts.find("torch_scheduler_steps")) {
    if (steps->items().size() != state.models.size())
      throw InputError(concat(steps->where().str(), ": torch_scheduler_steps has ", steps->items().size(),
                              " numbers, for ", state.models.size(), " models"));
    for (std::size_t i = 0; i < state.models.size(); ++i)
      state.models[i].torch_scheduler_steps = steps->items()[i].as_int();
  }
  if (const Value* best = counts.find("best")) {
    state.best_metric = best->at("metric").as_real();
    state.best_step = best->at("step").as_int();
    state.best_model_checkpoint = best->at("checkpoint").as_string();
  }
  return state;
}

void read_trainer_state(RunState& state, const std::string& path) {
  const Value trainer = read_json(path);
  if (count_at(trainer, "global_step") != state.step) {
    throw InputError(concat(path, ": global_step is ", trainer.at("global_step").as_int(), ", but ", kRunStateFile,
                            " contains step ", state.step));
  }
  state.log_history = trainer.at("log_history").items();
  state.num_input_tokens_seen = trainer.at("num_input_tokens_seen").as_int();
  if (const Value* best = trainer.find("best_metric"); best != nullptr && !best->is_null()) {
    state.best_metric = best->as_real();
    if (const Value& step = trainer.at("best_global_step"); !step.is_null()) state.best_step = step.as_int();
    if (const Value& path = trainer.at("best_model_checkpoint"); !path.is_null())
      state.best_model_checkpoint = path.as_string();
  }
}

/// transformers.TrainerState, all fields, sorted by name like its save_to_json.
Value trainer_state(const RunState& state) {
  return Value::make_object({
      {"best_global_step", state.best_step >= 0 ? Value::of(state.best_step) : Value()},
      {"best_metric", state.best_metric ? Value::of(*state.best_metric) : Value()},
      {"best_model_checkpoint", state.best_model_checkpoint.empty() ? Value() : Value::of(state.best_model_checkpoint)},
      {"epoch", Value::of(state.epoch)},
      {"eval_steps", Value::of(state.eval_steps)},
      {"global_step", Value::of(state.step)},
      {"is_hyper_param_search", Value::of(false)},
      {"is_local_process_zero", Value::of(true)},
      {"is_world_process_zero", Value::of(true)},
      {"log_history", Value::make_array(state.log_history)},
      {"logging_steps", Value::of(state.logging_steps)},
      {"max_steps", Value::of(state.max_steps)},
      {"num_input_tokens_seen", Value::of(state.num_input_tokens_seen)},
      {"num_train_epochs", Value::of(state.num_train_epochs)},
      {"save_steps", Value::of(state.save_steps)},
      {"stateful_callbacks", Value::make_object()},
      {"total_flos", Value::of(state.total_flos)},
      {"train_batch_size", state.train_batch_size > 0 ? Value::of(state.train_batch_size) : Value()},
      {"trial_name", Value()},
      {"trial_params", Value()},
  });
}

}  // namespace

WrittenFiles write_run_state(const std::string& folder, const RunState& state) {
  WrittenFiles written;
  if (state.trainer_state) written.push_back(write_json_file(folder, kTrainerStateFile, trainer_state(state)));
  if (state.model_only) return written;
  // The seed is stored as text: JSON readers lose integers beyond 2^53.
  Value own = Value::make_object({
      {"format", Value::of(kFormatWord)},
      {"step", Value::of(state.step)},
      {"samples", Value::of(state.samples)},
      {"seed", Value::of(std::to_string(state.seed))},
  });
  add_model(own, state.models.at(0));
  Value more = Value::make_array(), epochs = Value::make_array();
  for (std::size_t i = 1; i < state.models.size(); ++i) {
    Value model = Value::make_object();
    add_model(model, state.models[i]);
    more.push_back(std::move(model));
  }
  if (state.models.size() > 1) own.set("more", std::move(more));
  if (state.evaluation_due) own.set("evaluation_due", Value::of(true));
  if (!state.seconds_per_row.empty()) {
    Value speeds = Value::make_array();
    for (const double seconds : state.seconds_per_row) speeds.push_back(Value::of(seconds));
    own.set("seconds_per_row", std::move(speeds));
  }
  if (state.micro_steps > 0) own.set("micro_steps", Value::of(state.micro_steps));
  for (const std::int64_t epoch : state.loader_epochs) epochs.push_back(Value::of(epoch));
  if (!state.loader_epochs.empty()) own.set("loader_epochs", std::move(epochs));
  if (state.custom_objects > 0) own.set("custom_objects", Value::of(state.custom_objects));
  if (!state.client_state.is_null()) own.set("client_state", state.client_state);
  if (!state.stream.is_null()) own.set("stream", state.stream);
  if (!state.fp8_history.is_null()) own.set("fp8_amax_history", state.fp8_history);
  if (!state.input_ranges.is_null()) own.set("input_ranges", state.input_ranges);
  if (state.mesh)
    own.set("mesh", Value::make_object({{"ranks", Value::of(state.mesh->ranks)},
                                        {"strategy", Value::of(state.mesh->strategy)},
                                        {"shard_ranks", Value::of(state.mesh->shard_ranks)},
                                        {"replicate_ranks", Value::of(state.mesh->replicate_ranks)}}));
  if (!state.job.empty()) own.set("job", Value::of(state.job));
  if (!state.configuration.is_null()) own.set("configuration", state.configuration);
  if (!state.basis.is_null()) own.set("basis", state.basis);
  written.push_back(write_json_file(folder, kRunStateFile, own));
  return written;
}

RunState read_run_state(const std::string& folder) {
  RunState state;
  const std::string own_path = path_join(folder, kRunStateFile), old_path = path_join(folder, kOldFaceStateFile);
  if (!path_exists(own_path) && path_exists(old_path)) return read_old_face_state(read_json(old_path));
  const Value own = read_json(own_path);
  const std::string& word = own.at("format").as_string();
  if (word != kFormatWord)
    throw InputError(concat(own_path, ": format is '", word, "'; this program reads '", kFormatWord, "'"));
  state.step = count_at(own, "step");
  state.samples = count_at(own, "samples");
  state.seed = parse_seed(own.at("seed"));
  read_models(state, own);
  if (const Value* speeds = own.find("seconds_per_row"))
    for (const Value& seconds : speeds->items()) state.seconds_per_row.push_back(seconds.as_real());
  state.micro_steps = count_or_0(own, "micro_steps");
  if (const Value* epochs = own.find("loader_epochs"))
    for (const Value& epoch : epochs->items()) state.loader_epochs.push_back(epoch.as_int());
  state.custom_objects = count_or_0(own, "custom_objects");
  if (const Value* client = own.find("client_state")) state.client_state = *client;
  if (const Value* stream = own.find("stream")) state.stream = *stream;
  if (const Value* due = own.find("evaluation_due")) state.evaluation_due = due->as_bool();
  if (const Value* history = own.find("fp8_amax_history")) state.fp8_history = *history;
  if (const Value* ranges = own.find("input_ranges")) state.input_ranges = *ranges;
  if (const Value* mesh = own.find("mesh"))
    state.mesh = {.ranks = mesh->at("ranks").as_int(),
                  .strategy = mesh->at("strategy").as_string(),
                  .shard_ranks = mesh->at("shard_ranks").as_int(),
                  .replicate_ranks = mesh->at("replicate_ranks").as_int()};
  if (const Value* job = own.find("job")) state.job = job->as_string();
  if (const Value* configuration = own.find("configuration")) state.configuration = *configuration;
  if (const Value* basis = own.find("basis")) state.basis = *basis;
  const std::string trainer_path = path_join(folder, kTrainerStateFile);
  state.trainer_state = path_exists(trainer_path);
  if (state.trainer_state) read_trainer_state(state, trainer_path);
  return state;
}

}  // namespace tessera::checkpoint
