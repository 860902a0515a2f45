#pragma once
/// \file
/// A published entry: a folder ROOT/NAME with shards (shard.h), entry.json, which says what they are, manifest.json
/// with the checksums of all of these, and beside the manifest two files that change: `lock` and seen.json.
///
/// NAME is 32 hexadecimal digits made of settings and a glance at each source, so that it can be found without reading
/// the sources, and where that is not enough to tell contents apart ".1", ".2" ... behind them.

#include <tessera/corpus/cache/items.h>
#include <tessera/corpus/cache/source_state.h>

#include <string>
#include <vector>

namespace tessera::corpus {

/// A source of an entry.
struct EntrySource {
  std::string path;  ///< absolute, when the entry was made
  FileState state;   ///< then
  ContentHash hash;
};

struct Entry {
  std::string settings;
  std::vector<EntrySource> sources;
  Tally tally;
  std::vector<std::string> shards;
  std::int64_t made_ns = 0;  ///< CLOCK_REALTIME: when the states were seen last
};

inline constexpr const char* entry_file = "entry.json";
inline constexpr const char* lock_file = "lock";
inline constexpr const char* seen_file = "seen.json";

/// Places of `lock`. Items are the numbers of a build from 0.
inline constexpr std::uint64_t planning_place = std::uint64_t{1} << 62;  ///< exclusive: changes what a build is
inline constexpr std::uint64_t presence_place = planning_place + 1;      ///< shared: builds, or reads

Value to_json(const Entry& entry);
/// Throws InputError with the place.
Entry read_entry(const std::string& folder);

/// A file that is known to hold what source `source` of an entry holds.
struct SeenSource {
  std::size_t source = 0;
  std::string path;
  FileState state;
};
/// What seen.json holds; nothing where it is missing or unreadable, for it only saves work.
std::vector<SeenSource> read_seen(const std::string& folder);
void write_seen(const std::string& folder, const std::vector<SeenSource>& seen);

/// Whether the files hold what the entry was made of: by their states where these are known, else by reading them,
/// which is then remembered.
bool same_contents(const std::string& folder, const Entry& entry, const std::vector<SourceFile>& sources);

}  // namespace tessera::corpus
