#pragma once
/// \file
/// The operations of `tessera cache`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::corpus {

struct CacheEntry {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t used_ns = 0;  ///< CLOCK_REALTIME
  std::int64_t tokens = 0;
  std::vector<std::string> sources;  ///< paths of the sources when the entry was created
  std::string settings;
  bool finished = true;  ///< false: an unfinished, possibly interrupted build
  bool in_use = false;
  std::string damage;  ///< reason why it cannot be read; empty: it can
};

/// The entries of a cache, most recently used first. Empty for a missing folder.
std::vector<CacheEntry> list_cache(const std::string& root);

/// Removes an entry unless it is being used or built; returns whether it did.
bool remove_entry(const std::string& root, const std::string& name);

/// Returns the names of the entries to remove, least recently used first, so that the remaining ones were used within
/// `older_than_ns` and take at most `most_bytes`. Never includes an entry in use.
std::vector<std::string> to_remove(const std::vector<CacheEntry>& entries, std::optional<std::int64_t> older_than_ns,
                                   std::optional<std::uint64_t> most_bytes, std::int64_t now_ns);

/// Returns "" if every byte of an entry matches its checksums, otherwise a description of the mismatch.
std::string verify_entry(const std::string& root, const std::string& name);

/// Parse "30d", "12h", "90m", "45s" into nanoseconds; "1.5G", "500M", "64K", "100" into bytes. nullopt: anything else.
std::optional<std::int64_t> parse_age(const std::string& text);
std::optional<std::uint64_t> parse_size(const std::string& text);

}  // namespace tessera::corpus
