#pragma once
/// \file
/// Detects whether a source file has changed, by its metadata or its contents.

#include <tessera/base/value.h>
#include <tessera/corpus/cache/content_hash.h>
#include <tessera/corpus/records.h>

#include <cstdint>
#include <string>

namespace tessera::corpus {

/// Metadata that changes with every write to a file, as in git's index. (Writes through a shared mapping change the
/// times only when the kernel flushes them; do not train on a file that is modified in this way.)
struct FileState {
  std::uint64_t bytes = 0, inode = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  ///< mtime; ctime, which no program can set
  bool operator==(const FileState&) const = default;
};

/// Throws InputError when the file does not exist or is not a regular file.
FileState state_of(const std::string& path);

Value to_json(const FileState& state);
FileState state_from_json(const Value& value);

/// Whether a state recorded at `seen_ns` (CLOCK_REALTIME) can be trusted: file times are coarse, so a write right after
/// recording may leave them unchanged.
bool is_settled(const FileState& state, std::int64_t seen_ns);
std::int64_t real_time_ns();
/// Waits, for a few milliseconds at most, until any later write would change the times in `state`.
void let_settle(const FileState& state);

/// A cheap fingerprint: kind, size, and 64 KiB each of start, middle and end. Files that differ only elsewhere have the
/// same fingerprint; their ContentHash distinguishes them.
std::string glance_at(const SourceFile& file);

/// Reads the whole file.
ContentHash hash_of_file(const std::string& path, std::uint64_t bytes);

}  // namespace tessera::corpus
