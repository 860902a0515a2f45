#pragma once
/// \file
/// How the commands that write a model folder do it: it appears whole or not at all, and nothing but a model is ever
/// replaced.

#include <csignal>
#include <string>

namespace tessera::tool {

/// Files that belong to a model folder: what --overwrite may remove.
bool is_model_file(const std::string& name);

/// The folder may be missing or empty, or, to be overwritten, hold nothing but model files, and not the source. Throws
/// InputError.
void check_output(const std::string& out, const std::string& source, bool overwrite);

/// Copies configuration and tokenizer (all model files but weights) from a model folder; a path that is no folder has
/// none.
void copy_model_files(const std::string& from, const std::string& to);

/// A folder beside OUT_DIR that is filled and then takes its place. Destroyed before that, it leaves nothing behind.
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

/// SIGINT and SIGTERM ask to stop, so that what was begun is cleaned up.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  /// Throws Error when one has come.
  static void check();

 private:
  struct sigaction interrupt_{}, terminate_{};  ///< what was in force before
};

}  // namespace tessera::tool
