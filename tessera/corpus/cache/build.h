#pragma once
/// \file
/// Builds a cache entry, with the work shared by all processes of one or several jobs that need it.
///
/// ROOT/NAME.building contains the shards during the build. Every process that needs the entry works on items (items.h)
/// that no other process has claimed. An item is claimed by a lock on its number; if its holder dies, the kernel
/// releases the lock and another process takes over. When all items are done, one process writes entry.json and
/// manifest.json and renames the folder. Before the rename the entry is not visible; after it, it is complete and on
/// disk. A process that finds a build of different contents under the same name waits for its end.

#include <tessera/corpus/cache/request.h>

#include <string>

namespace tessera::corpus {

/// Returns when ROOT/NAME has been published, by this process or another. Throws InputError that lists up to 20
/// unusable records; Error with sizes when the disk is full; Error when a source changes during the build. After an
/// error the last process working on the build removes it; a killed process leaves its finished items for others to
/// continue.
void build_entry(const std::string& root, const std::string& name, const TokenRequest& request,
                 const CacheProgress& progress);

/// Builds the entry like build_entry(), in a private folder of this process and without syncing it to disk.
void build_privately(const std::string& folder, const TokenRequest& request, const CacheProgress& progress);

}  // namespace tessera::corpus
