#pragma once
/// \file
/// Ensures that an output folder belongs to one job at a time, with a lock on OUT/.tessera-lock that the kernel
/// releases when its holder ends, for whatever reason.

#include <tessera/launch/agent/unique_fd.h>

#include <string>

namespace tessera::train {

inline constexpr const char* kOutputLock = ".tessera-lock";

/// Rank 0 holds one while it writes into the folder. On a file system without locks, nothing is locked, and a warning
/// is printed.
class OutputLock {
 public:
  /// Does not wait. Throws InputError naming the job, process and host that write there, and Error if the file cannot
  /// be created.
  OutputLock(const std::string& output_dir, const std::string& job);
  /// Takes the lock again, with a warning, if the file or its folder was moved or removed. Throws Error if another job,
  /// even another user's, has taken it in the meantime. Ignores disk errors: the next write reports them.
  void renew();
  /// Removes the file.
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::string folder_;
  std::string path_;
  std::string text_;  // the file's description of its holder
  launch::UniqueFd fd_;
};

/// Throws the same InputError if another process holds the lock; creates no file.
void require_unlocked(const std::string& output_dir);

}  // namespace tessera::train
