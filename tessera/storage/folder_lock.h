#pragma once
/// \file
/// Only one process makes a folder: a lock that the kernel drops when its holder dies.

#include <tessera/launch/agent/unique_fd.h>

#include <atomic>
#include <string>

namespace tessera::storage {

/// Holds PATH.lock locked (an open file description lock, which NFS keeps at the server from version 4 on) and removes
/// it at its end.
class FolderLock {
 public:
  /// Waits until the lock is free. Throws Error when the file cannot be made or the file system has no locks, and when
  /// `cancelled` (may be nullptr) becomes true.
  explicit FolderLock(const std::string& path, const std::atomic<bool>* cancelled = nullptr);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string path_;
  launch::UniqueFd fd_;
};

}  // namespace tessera::storage
