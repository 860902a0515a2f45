#pragma once
/// \file
/// An output folder belongs to one job at a time: OUT/.tessera-lock, which the kernel gives free when its holder ends,
/// however it ends.

#include <tessera/launch/agent/unique_fd.h>

#include <string>

namespace tessera::train {

inline constexpr const char* kOutputLock = ".tessera-lock";

/// Rank 0 holds one while it writes into the folder. Where the file system has no locks it holds nothing, with a
/// warning.
class OutputLock {
 public:
  /// Does not wait. Throws InputError that names the job, the process and the host which write there, and Error when
  /// the file cannot be made.
  OutputLock(const std::string& output_dir, const std::string& job);
  /// Takes the lock anew, with a warning, where the file or its folder was moved or removed. Throws Error when another
  /// job, also one of another user, has taken it meanwhile. What the disk refuses is left as it is: whatever is written
  /// next says so.
  void renew();
  /// Removes the file.
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::string folder_;
  std::string path_;
  std::string text_;  // what the file says of its holder
  launch::UniqueFd fd_;
};

/// Throws that InputError if another process holds the lock now; makes no file.
void require_unlocked(const std::string& output_dir);

}  // namespace tessera::train
