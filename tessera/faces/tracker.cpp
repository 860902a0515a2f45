#include <tessera/faces/tracker.h>

#include <fcntl.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/append_file.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/tensorboard.h>

namespace tessera::faces {
namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Writes an event file, which starts with the configuration.
class TensorBoardTracker : public Tracker {
 public:
  explicit TensorBoardTracker(std::string folder) : folder_(std::move(folder)) {}

  void start(const std::string& project_name, const Value& config) override {
    events_.emplace(path_join(folder_, project_name), unix_seconds(), 0);
    events_->text(unix_seconds(), 0, "config/text_summary", dump_json(config));
  }
  void log(const Value& values, std::int64_t step) override {
    std::vector<format::Scalar> scalars;
    for (const auto& [name, value] : values.members())
      if (value.is_string())
        events_->text(unix_seconds(), step, name, value.as_string());
      else
        scalars.emplace_back(name, value.as_real());
    if (!scalars.empty()) events_->scalars(unix_seconds(), step, scalars);
  }
  void finish() override { events_.reset(); }

 private:
  std::string folder_;
  std::optional<format::EventFile> events_;
};

/// Writes metrics.jsonl: a line {"config": ...}, then one per call, {"step": N, NAME: VALUE, ...}.
class JsonlTracker : public Tracker {
 public:
  explicit JsonlTracker(std::string folder) : folder_(std::move(folder)) {}

  void start(const std::string& project_name, const Value& config) override {
    const std::string folder = path_join(folder_, project_name);
    make_folders(folder);
    file_ = AppendFile(path_join(folder, "metrics.jsonl"), O_CREAT);
    file_.append(dump_json(Value::make_object({{"config", config}}), /*indent=*/-1) + "\n");
  }
  void log(const Value& values, std::int64_t step) override {
    Value line = Value::make_object({{"step", Value::of(step)}});
    for (const auto& [name, value] : values.members()) line.set(name, value);
    file_.append(dump_json(line, /*indent=*/-1) + "\n");
  }
  void finish() override { file_ = {}; }

 private:
  std::string folder_;
  AppendFile file_;
};

}  // namespace

std::shared_ptr<Tracker> make_tracker(const std::string& name, const std::string& folder) {
  if (name != "tensorboard" && name != "jsonl")
    throw InputError(concat("Accelerator: log_with names the tracker '", name,
                            "'; it must be tensorboard or jsonl; pass others as AcceleratorOptions::trackers"));
  if (folder.empty()) throw InputError("Accelerator: log_with needs a folder: set logging_dir or project_dir");
  if (name == "jsonl") return std::make_shared<JsonlTracker>(folder);
  return std::make_shared<TensorBoardTracker>(folder);
}

void check_logged(const Value& values) {
  if (!values.is_object()) throw InputError("Accelerator: log takes an object: names and their values");
  for (const auto& [name, value] : values.members())
    if (!value.is_number() && !value.is_string())
      throw InputError(concat("Accelerator: log: the value of ", name, " is neither a number nor a string"));
}

}  // namespace tessera::faces
