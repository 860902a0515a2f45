#pragma once
/// \file
/// Output of the commands that write a model folder: it appears complete or not at all, and only model files are ever
/// replaced.

#include <csignal>
#include <string>

namespace tessera::tool {

/// Whether a file belongs to a model folder, so that --overwrite may remove it.
bool is_model_file(const std::string& name);

/// Throws InputError unless the folder is missing, empty, or (with `overwrite`) contains only model files and not the
/// source.
void check_output(const std::string& out, const std::string& source, bool overwrite);

/// Copies configuration and tokenizer (all model files except weights) from a model folder; does nothing if the path is
/// not a folder.
void copy_model_files(const std::string& from, const std::string& to);

/// A folder next to OUT_DIR that is filled and then renamed to it. If destroyed before that, it leaves nothing behind.
class NewFolder {
 public:
  explicit NewFolder(const std::string& out);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();
  const std::string& path() const { return path_; }
  void publish();

 private:
  std::string out_, path_;
  std::string made_;  ///< the first missing folder above out_
  bool done_ = false;
};

/// Turns SIGINT and SIGTERM into a request to stop, so that partial output is cleaned up.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  /// Throws Error when such a signal has arrived.
  static void check();

 private:
  struct sigaction interrupt_{}, terminate_{};  ///< previous handlers
};

}  // namespace tessera::tool
