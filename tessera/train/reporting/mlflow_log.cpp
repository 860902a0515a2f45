#include <tessera/train/reporting/mlflow_log.h>

#include <cstdlib>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/launch/store/store_secret.h>

namespace tessera::train {
namespace {

/// 32 hexadecimal digits, as MLflow draws them.
std::string new_run_id() {
  static constexpr char digits[] = "0123456789abcdef";
  const launch::Secret bytes = launch::make_secret();
  std::string id;
  for (std::size_t i = 0; i < 16; ++i) {
    id += digits[bytes[i] >> 4];
    id += digits[bytes[i] & 15];
  }
  return id;
}

/// What the output folder says; empty: nothing.
std::string former_run(const std::string& output_dir) {
  const std::string path = path_join(output_dir, kMlflowRunFile);
  if (!path_exists(path)) return "";
  std::string id = trim(read_file(path));
  if (format::is_mlflow_run_id(id)) return id;
  log::warning(path, " holds no run's id; a new MLflow run begins");
  return "";
}

std::string text_of(const Value& value) { return value.is_string() ? value.as_string() : dump_json(value, -1); }

/// A parameter of the run; what is not set is none.
void give(format::MlflowRun& run, const std::string& name, const Value& value) {
  if (value.is_null()) return;
  const std::string text = text_of(value);
  if (!text.empty() && !run.parameter(name, text))
    log::warning("MLflow's parameter ", name, " is left out: it has ", text.size(), " bytes, and 6000 are allowed");
}

}  // namespace

MlflowSettings read_mlflow_settings(const std::function<std::optional<std::string>(const std::string&)>& getenv) {
  const auto variable = [&](const std::string& name) -> std::string {
    if (getenv) return getenv(name).value_or("");
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  };
  MlflowSettings settings;
  if (const std::string uri = variable("MLFLOW_TRACKING_URI"); !uri.empty())
    settings.store = format::mlflow_store_folder(uri);
  if (const std::string name = variable("MLFLOW_EXPERIMENT_NAME"); !name.empty()) settings.experiment = name;
  settings.run_id = variable("MLFLOW_RUN_ID");
  if (!settings.run_id.empty() && !format::is_mlflow_run_id(settings.run_id))
    throw InputError(concat("MLFLOW_RUN_ID is ", settings.run_id,
                            ": a run's id is a letter or digit and then up to 255 of these, _ and -"));
  if (const std::string tags = variable("MLFLOW_TAGS"); !tags.empty()) {
    settings.tags = parse_json(tags, "MLFLOW_TAGS");
    if (!settings.tags.is_object()) throw InputError("MLFLOW_TAGS is no JSON object: {\"name\": \"value\"}");
  }
  for (const char* name : {"HF_MLFLOW_LOG_ARTIFACTS", "MLFLOW_NESTED_RUN"}) {
    const std::string word = to_lower(variable(name));
    if (word == "1" || word == "true" || word == "on" || word == "yes") settings.ignored.push_back(name);
  }
  for (const char* name : {"MLFLOW_EXPERIMENT_ID", "MLFLOW_MAX_LOG_PARAMS"})
    if (!variable(name).empty()) settings.ignored.push_back(name);
  return settings;
}

std::unique_ptr<format::MlflowRun> open_mlflow_run(const MlflowSettings& settings, const std::string& output_dir,
                                                   const std::string& run_name, std::int64_t resumed_step,
                                                   const Value& configuration, const Value& model_config,
                                                   double wall_time) {
  const std::string store = settings.store.empty() ? absolute_path(path_join(output_dir, "mlruns")) : settings.store;
  const std::string former = former_run(output_dir);
  const std::string id = !settings.run_id.empty() ? settings.run_id : !former.empty() ? former : new_run_id();
  auto run = std::make_unique<format::MlflowRun>(store, settings.experiment, id, run_name, wall_time);
  if (id == former)
    run->resume_after(resumed_step);
  else
    write_file_atomically(path_join(output_dir, kMlflowRunFile), id + "\n");
  run->tag("mlflow.source.name", "tessera train");
  run->tag("mlflow.source.type", "LOCAL");
  run->tag("tessera.output_dir", absolute_path(output_dir));
  for (const auto& [name, value] : settings.tags.members()) run->tag(name, text_of(value));
  // The settings are what a run is told by; of the model's own numbers those that no setting has the name of.
  for (const auto& [section, settings_of_it] : configuration.members())
    for (const auto& [name, setting] : settings_of_it.members()) give(*run, name, setting.at("value"));
  for (const auto& [name, value] : model_config.members()) give(*run, name, value);
  return run;
}

}  // namespace tessera::train
