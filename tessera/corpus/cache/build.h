#pragma once
/// \file
/// Making an entry, by all processes that want it, of one job or of several.
///
/// ROOT/NAME.building holds the shards while they are made. Whoever wants the entry takes items (items.h) that nobody
/// works on: an item is claimed by a lock on its number, which the kernel drops when its holder dies, so that another
/// takes it over. When all are done, one process writes entry.json and manifest.json and renames the folder: before
/// that nothing can be found, after it everything is there and on the disk. Processes that find another's build of
/// other contents under the same name wait for its end.

#include <tessera/corpus/cache/request.h>

#include <string>

namespace tessera::corpus {

/// Returns when ROOT/NAME is published, or by then somebody else's is. Throws InputError that lists up to 20 records
/// that cannot be used; Error with sizes when the disk is full; Error when a source changes meanwhile. What was made is
/// then removed by the last who works on it; it is left for others to go on with when the process is killed.
void build_entry(const std::string& root, const std::string& name, const TokenRequest& request,
                 const CacheProgress& progress);

/// Makes the entry as build_entry() does, in a folder of this process alone and without waiting for the disk.
void build_privately(const std::string& folder, const TokenRequest& request, const CacheProgress& progress);

}  // namespace tessera::corpus
