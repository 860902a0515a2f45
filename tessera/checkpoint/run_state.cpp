// The half of a checkpoint that resumes the run: trainer_state.json as transformers reads it, and tessera_state.json.

#include <charconv>
#include <system_error>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/files.h>

namespace tessera::checkpoint {
namespace {

constexpr const char* kFormatWord = "tessera-state-1";

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
  if (count < 0) throw InputError(concat(object.at(key).where().str(), ": ", key, " is ", count, ", must be >= 0"));
  return count;
}

}  // namespace

// transformers.TrainerState, all fields, sorted by name as its save_to_json does.
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

WrittenFiles write_run_state(const std::string& folder, const RunState& state) {
  if (state.model_only) return {write_json_file(folder, kTrainerStateFile, trainer_state(state))};
  // The seed is text: JSON readers lose integers beyond 2^53.
  Value own = Value::make_object({
      {"format", Value::of(kFormatWord)},
      {"step", Value::of(state.step)},
      {"samples", Value::of(state.samples)},
      {"optimizer_steps", Value::of(state.optimizer_steps)},
      {"seed", Value::of(std::to_string(state.seed))},
  });
  if (state.loss_scale > 0)
    own.set("loss_scale", Value::make_object({{"scale", Value::of(state.loss_scale)},
                                              {"good_steps", Value::of(state.loss_scale_good_steps)},
                                              {"skipped_steps", Value::of(state.loss_scale_skipped_steps)},
                                              {"hysteresis", Value::of(state.loss_scale_hysteresis)}}));
  if (!state.schedule_state.is_null()) own.set("schedule", state.schedule_state);
  if (!state.mesh.is_null()) own.set("mesh", state.mesh);
  if (!state.configuration.is_null()) own.set("configuration", state.configuration);
  return {write_json_file(folder, kTrainerStateFile, trainer_state(state)),
          write_json_file(folder, kRunStateFile, own)};
}

RunState read_run_state(const std::string& folder) {
  RunState state;
  const std::string own_path = path_join(folder, kRunStateFile);
  const Value own = read_json(own_path);
  const std::string& word = own.at("format").as_string();
  if (word != kFormatWord)
    throw InputError(concat(own_path, ": format is '", word, "'; this program reads '", kFormatWord, "'"));
  state.step = count_at(own, "step");
  state.samples = count_at(own, "samples");
  state.optimizer_steps = count_at(own, "optimizer_steps");
  state.seed = parse_seed(own.at("seed"));

  if (const Value* scale = own.find("loss_scale")) {
    state.loss_scale = scale->at("scale").as_real();
    state.loss_scale_good_steps = count_at(*scale, "good_steps");
    state.loss_scale_skipped_steps = count_at(*scale, "skipped_steps");
    if (scale->find("hysteresis") != nullptr) state.loss_scale_hysteresis = count_at(*scale, "hysteresis");
  }
  if (const Value* schedule = own.find("schedule")) state.schedule_state = *schedule;
  if (const Value* mesh = own.find("mesh")) state.mesh = *mesh;
  if (const Value* configuration = own.find("configuration")) state.configuration = *configuration;

  const std::string trainer_path = path_join(folder, kTrainerStateFile);
  const Value trainer = read_json(trainer_path);
  if (count_at(trainer, "global_step") != state.step) {
    throw InputError(concat(trainer_path, ": global_step is ", trainer.at("global_step").as_int(), ", but ",
                            kRunStateFile, " says step ", state.step));
  }
  state.log_history = trainer.at("log_history").items();
  state.epoch = trainer.at("epoch").as_real();
  state.max_steps = trainer.at("max_steps").as_int();
  state.num_train_epochs = trainer.at("num_train_epochs").as_real();
  state.logging_steps = trainer.at("logging_steps").as_int();
  state.eval_steps = trainer.at("eval_steps").as_int();
  state.save_steps = trainer.at("save_steps").as_int();
  state.num_input_tokens_seen = trainer.at("num_input_tokens_seen").as_int();
  state.total_flos = trainer.at("total_flos").as_real();
  if (const Value* best = trainer.find("best_metric"); best != nullptr && !best->is_null()) {
    state.best_metric = best->as_real();
    if (const Value& step = trainer.at("best_global_step"); !step.is_null()) state.best_step = step.as_int();
    if (const Value& path = trainer.at("best_model_checkpoint"); !path.is_null())
      state.best_model_checkpoint = path.as_string();
  }
  const Value& rows = trainer.at("train_batch_size");
  state.train_batch_size = rows.is_null() ? 0 : rows.as_int();
  return state;
}

}  // namespace tessera::checkpoint
