#pragma once
/// \file
/// Which run of which MLflow store a training writes to (--report_to mlflow): the variables that transformers' callback
/// obeys, and the run that a resumed training goes on with.

#include <tessera/base/value.h>
#include <tessera/format/mlflow.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

/// What the variables MLFLOW_* say.
struct MlflowSettings {
  std::string store;                      ///< folder; empty: mlruns in the output folder
  std::string experiment = "Default";     ///< MLFLOW_EXPERIMENT_NAME
  std::string run_id;                     ///< MLFLOW_RUN_ID; empty: a new run, or the one that is resumed
  Value tags = Value::make_object();      ///< MLFLOW_TAGS, an object
  std::vector<std::string> ignored = {};  ///< variables that ask for what is not done here
};

/// Throws InputError for a MLFLOW_TRACKING_URI that is no file store, a MLFLOW_RUN_ID that is none, and MLFLOW_TAGS
/// that are no object. `getenv`: by default the process's.
MlflowSettings read_mlflow_settings(const std::function<std::optional<std::string>(const std::string&)>& getenv = {});

/// The file of the output folder that says which run its numbers went to.
inline constexpr const char* kMlflowRunFile = "mlflow_run_id";

/// The run, open. When `output_dir` says which run it has written to, that one goes on after `resumed_step` (below 0:
/// from its start). Every setting of `configuration` (config::to_value) and what `model_config` says is a parameter.
std::unique_ptr<format::MlflowRun> open_mlflow_run(const MlflowSettings& settings, const std::string& output_dir,
                                                   const std::string& run_name, std::int64_t resumed_step,
                                                   const Value& configuration, const Value& model_config,
                                                   double wall_time);

}  // namespace tessera::train
