#pragma once
/// \file
/// MLflow's file store, written without MLflow: the folder that `mlflow ui --backend-store-uri file:FOLDER` shows
/// (mlflow/store/tracking/file_store.py of MLflow 2 and 3). An experiment is a folder with meta.yaml, a run a folder in
/// it: meta.yaml, one file per metric (a line "milliseconds value step" per point), per parameter and per tag.
/// Nothing here reads a clock or draws numbers: times in Unix seconds and the id of a new run are the caller's.

#include <tessera/base/append_file.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::format {

/// The folder of a store named as MLFLOW_TRACKING_URI names it: a path, "file:PATH", "file:///PATH" with %20 and the
/// like. Throws InputError for any other scheme (a server, a data base), naming it without what may be a password.
std::string mlflow_store_folder(const std::string& tracking_uri);

/// Whether MLflow takes it as the id of a run: a letter or digit, then up to 255 of these, '_' and '-'.
bool is_mlflow_run_id(std::string_view text);

/// One run, open for points. Not copyable; one thread at a time. Points never fail: what the disk does not take is kept
/// and written later (append_file.h), and those whose file cannot be made are dropped with a warning.
class MlflowRun {
 public:
  enum class Status { running = 1, finished = 3, failed = 4, killed = 5 };
  using Points = std::span<const std::pair<std::string, double>>;

  /// Opens the run `run_id` of the store where it is there, whatever its experiment, and else makes it in the active
  /// experiment of that name, which is made too when it is not there ("Default" has the id 0, as MLflow's). `name`: for
  /// people. Throws InputError for an id that MLflow would refuse and for a run that has been deleted there, Error when
  /// the store cannot be written.
  MlflowRun(const std::string& store, const std::string& experiment, const std::string& run_id, const std::string& name,
            double wall_time);
  ~MlflowRun();  ///< a run that nobody has ended has failed
  MlflowRun(const MlflowRun&) = delete;
  MlflowRun& operator=(const MlflowRun&) = delete;

  /// Points after `step` will be measured again: they are dropped, and so are lines that are none (a machine that lost
  /// power leaves such). Call it before the first points().
  void resume_after(std::int64_t step);
  /// One value per name. Characters that MLflow has no place for in a name become '_'.
  void points(double wall_time, std::int64_t step, Points values);
  /// A parameter keeps the value that it has in the run already, as MLflow has it. One longer than 6000 bytes is left
  /// out: returns whether it was written.
  bool parameter(const std::string& name, const std::string& value);
  void tag(const std::string& name, const std::string& value);
  /// What cannot be written is a warning: the training that ends well has ended well.
  void end(double wall_time, Status status);

  const std::string& folder() const { return folder_; }  ///< the run's, in its experiment's
  const std::string& id() const { return id_; }

 private:
  void write_meta(Status status, double end_time);

  std::string id_, experiment_id_, name_, user_, artifacts_, folder_;
  double start_time_ = 0;
  double last_time_ = 0;  ///< when the newest points were measured
  bool ended_ = false;
  bool told_ = false;  ///< that points are missing
  std::map<std::string, AppendFile> metrics_;
};

}  // namespace tessera::format
