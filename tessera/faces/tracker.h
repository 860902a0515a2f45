#pragma once
/// \file
/// The targets of Accelerator::log() (accelerate/tracking.py).

#include <tessera/base/value.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

/// A single target. Called on the main process only, by one thread.
class Tracker {
 public:
  virtual ~Tracker() = default;
  /// Called by init_trackers(), before anything is logged.
  virtual void start(const std::string& project_name, const Value& config) = 0;
  /// values: an object of numbers and strings.
  virtual void log(const Value& values, std::int64_t step) = 0;
  /// Called by end_training().
  virtual void finish() {}
};

namespace faces {

/// Creates a tensorboard or jsonl tracker that writes into FOLDER/PROJECT_NAME. Throws InputError for an unknown name,
/// or an empty folder.
std::shared_ptr<Tracker> make_tracker(const std::string& name, const std::string& folder);

/// Throws InputError, naming the offending member, unless the values are an object of numbers and strings.
void check_logged(const Value& values);

}  // namespace faces
}  // namespace tessera
