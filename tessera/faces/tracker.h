#pragma once
/// \file
/// Where Accelerator::log() writes (accelerate/tracking.py).

#include <tessera/base/value.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

/// One place that numbers go to. Called on the main process only, by one thread.
class Tracker {
 public:
  virtual ~Tracker() = default;
  /// init_trackers(): before anything is logged.
  virtual void start(const std::string& project_name, const Value& config) = 0;
  /// values: an object of numbers and texts.
  virtual void log(const Value& values, std::int64_t step) = 0;
  /// end_training().
  virtual void finish() {}
};

namespace faces {

/// tensorboard | jsonl, writing into FOLDER/PROJECT_NAME. Throws InputError for another name, or an empty folder.
std::shared_ptr<Tracker> make_tracker(const std::string& name, const std::string& folder);

/// Throws InputError unless the values are an object of numbers and texts, naming the one that is not.
void check_logged(const Value& values);

}  // namespace faces
}  // namespace tessera
