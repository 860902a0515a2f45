#pragma once
/// \file
/// A folder in memory (tmpfs) owned by the agent: files that ranks store there (--checkpoint_in_memory) survive them
/// and are available to the ranks of the next generation. The folder is removed with the agent.

#include <string>

namespace tessera::launch {

class MemoryFolder {
 public:
  MemoryFolder() = default;
  /// Makes PARENT/tessera-memory-PID-XXXXXX, accessible to this user only, and removes the folders of agents that were
  /// killed before they could clean up. The path stays empty where no such file system is writable. Nothing can then be
  /// kept in memory, and the ranks report an error if asked to.
  explicit MemoryFolder(const std::string& parent);
  ~MemoryFolder();
  MemoryFolder(MemoryFolder&& other) noexcept;
  MemoryFolder& operator=(MemoryFolder&& other) noexcept;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Linux's tmpfs for shared memory.
inline constexpr const char* memory_parent = "/dev/shm";

}  // namespace tessera::launch
