#pragma once
/// \file
/// Compiled programs on disk, so that the next run with the same program starts without compiling.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::xla {

/// A folder of entries, one file each, shared by all processes that name it. Entries are written whole or not at all,
/// and checked when they are read. Threads and processes: any.
class ProgramCache {
 public:
  /// Bytes of a folder's entries: those used longest ago are removed above this.
  static constexpr std::uint64_t most_bytes = std::uint64_t{8} << 30;

  explicit ProgramCache(std::string folder, std::uint64_t most = most_bytes)
      : folder_(std::move(folder)), most_(most) {}

  /// The name of an entry for a program that all of this decides.
  static std::string key_of(std::string_view everything);

  /// The entry; none where there is none. One that is damaged is left out, with a warning.
  std::optional<std::string> read(const std::string& key) const;
  /// Writes the entry, in place of one of that name. What cannot be written is not kept, with a warning.
  void write(const std::string& key, std::string_view bytes) const;

 private:
  std::string path_of(const std::string& key) const;
  void remove_oldest(const std::string& newest) const;

  std::string folder_;
  std::uint64_t most_;
};

}  // namespace tessera::xla
