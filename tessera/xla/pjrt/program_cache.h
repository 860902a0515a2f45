#pragma once
/// \file
/// Compiled programs on disk, so that the next run of the same program starts without compiling.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::xla {

/// A folder of entries, one file each, shared by all processes that use it. Entries are written atomically, and
/// verified when they are read. Any thread, any process.
class ProgramCache {
 public:
  /// Maximum size of the folder in bytes; beyond it, the least recently used entries are removed.
  static constexpr std::uint64_t most_bytes = std::uint64_t{8} << 30;

  explicit ProgramCache(std::string folder, std::uint64_t most = most_bytes)
      : folder_(std::move(folder)), most_(most) {}

  /// An entry's name: the hash of everything that determines the program.
  static std::string key_of(std::string_view everything);

  /// The entry, or nullopt. For a damaged one, compiled_again().
  std::optional<std::string> read(const std::string& key) const;
  /// Writes the entry, replacing any entry of the same name. On failure, warns and stores nothing.
  void write(const std::string& key, std::string_view bytes) const;
  /// Warns that an entry cannot be used; only the first time.
  void compiled_again(std::string_view why) const;

 private:
  std::string path_of(const std::string& key) const;
  void remove_oldest(const std::string& newest) const;

  std::string folder_;
  std::uint64_t most_;
  mutable std::atomic<bool> told_ = false;
};

}  // namespace tessera::xla
