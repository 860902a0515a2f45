#pragma once
/// \file
/// A published entry: a folder ROOT/NAME with shards (shard.h), entry.json, which describes them, manifest.json with
/// the checksums of all these files, and two mutable files outside the manifest: `lock` and seen.json.
///
/// NAME is 32 hexadecimal digits, a hash of the settings and a partial hash of each source, so that an entry is found
/// without reading the sources completely; entries with the same hash but different contents get the suffixes ".1",
/// ".2" ...

#include <tessera/corpus/cache/items.h>
#include <tessera/corpus/cache/source_state.h>

#include <string>
#include <vector>

namespace tessera::corpus {

/// A source file of an entry.
struct EntrySource {
  std::string path;  ///< absolute path when the entry was made
  FileState state;   ///< its state at that time
  ContentHash hash;
};

struct Entry {
  std::string settings;
  std::vector<EntrySource> sources;
  Tally tally;
  std::vector<std::string> shards;
  std::int64_t made_ns = 0;  ///< CLOCK_REALTIME when the states were last recorded
};

inline constexpr const char* entry_file = "entry.json";
inline constexpr const char* lock_file = "lock";
inline constexpr const char* seen_file = "seen.json";

/// Positions in `lock`. Positions from 0 are the item numbers of a build.
inline constexpr std::uint64_t planning_place = std::uint64_t{1} << 62;  ///< exclusive: join, publish or clear a build
inline constexpr std::uint64_t presence_place = planning_place + 1;      ///< shared: building or reading the entry

Value to_json(const Entry& entry);
/// Parses entry.json. Throws InputError with the position.
Entry read_entry(const std::string& folder);

/// A file known to have the same contents as source `source` of an entry.
struct SeenSource {
  std::size_t source = 0;
  std::string path;
  FileState state;
};
/// The contents of seen.json; empty if it is missing or unreadable, because it only saves work.
std::vector<SeenSource> read_seen(const std::string& folder);
void write_seen(const std::string& folder, const std::vector<SeenSource>& seen);

/// Whether the files have the contents that the entry was made from: judged by their states if these are known,
/// otherwise by reading the files, whose states are then recorded.
bool same_contents(const std::string& folder, const Entry& entry, const std::vector<SourceFile>& sources);

}  // namespace tessera::corpus
