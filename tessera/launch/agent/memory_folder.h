#pragma once
/// \file
/// A folder in memory (tmpfs) that belongs to the agent: what ranks keep there (--checkpoint_in_memory) outlives them
/// and is there for the ranks that are started after them; it ends with the agent.

#include <string>

namespace tessera::launch {

class MemoryFolder {
 public:
  MemoryFolder() = default;
  /// Makes PARENT/tessera-memory-PID-XXXXXX, for this user only, and removes those of agents that were killed before
  /// they could. PATH stays empty where there is no such file system to write to: then nothing can be kept in memory,
  /// which the ranks say if they are asked to.
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
