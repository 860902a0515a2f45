#pragma once
/// \file
/// Whether a source file is still what it was: by what the file system says of it, or by its content.

#include <tessera/base/value.h>
#include <tessera/corpus/cache/content_hash.h>
#include <tessera/corpus/records.h>

#include <cstdint>
#include <string>

namespace tessera::corpus {

/// What changes whenever somebody writes to a file, as in git's index. (Writing through a shared mapping changes the
/// times only when the kernel comes to it; nobody should train on such a file.)
struct FileState {
  std::uint64_t bytes = 0, inode = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  ///< mtime; ctime, which no program can set
  bool operator==(const FileState&) const = default;
};

/// Throws InputError when there is no such file, or it is none.
FileState state_of(const std::string& path);

Value to_json(const FileState& state);
FileState state_from_json(const Value& value);

/// Whether a state that was seen at `seen_ns` (CLOCK_REALTIME) may be trusted: file times are coarse, so that a write
/// right after the look may leave the same ones behind.
bool is_settled(const FileState& state, std::int64_t seen_ns);
std::int64_t real_time_ns();
/// Waits, for some milliseconds at most, until a write from now on would leave another time than the state has.
void let_settle(const FileState& state);

/// A cheap look at the content: kind, size, and 64 KiB each of beginning, middle and end. Files that differ elsewhere
/// have the same; their ContentHash tells them apart.
std::string glance_at(const SourceFile& file);

/// Reads all of it.
ContentHash hash_of_file(const std::string& path, std::uint64_t bytes);

}  // namespace tessera::corpus
