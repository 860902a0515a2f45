#pragma once
/// \file
/// Ensures that only one process creates a folder: a lock that the kernel releases when its holder dies.

#include <tessera/launch/agent/unique_fd.h>

#include <atomic>
#include <string>

namespace tessera::storage {

/// Holds a lock on PATH.lock (an open file description lock, which NFS keeps at the server from version 4 on) and
/// removes the file on destruction.
class FolderLock {
 public:
  /// Waits until the lock is free. Throws Error when the file cannot be created, the file system has no locks, or
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
