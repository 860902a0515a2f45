#pragma once
/// \file
/// Fetches data from an object store into local files, once for all runs and all processes of a host.

#include <tessera/storage/push.h>

#include <string>

namespace tessera::storage {

/// Takes a --train_file list (corpus/data_list.h), fetches every s3:// URL in it into a folder below `cache`, and
/// returns the list with local paths in their place; weights are kept. A URL is one object, a "folder" (everything
/// below it) or a pattern (`*`, `?`, `[a-z]`, within one level). With a .bin its .idx is fetched too.
///
/// The objects of one URL are stored in a folder whose name is a hash of URL, sizes and ETags, so a changed object is
/// fetched again and an unchanged one is not. The folder is renamed into place when everything is on disk and every
/// object matches the checksum that the store has for it: the CRC-32C recorded by `tessera checkpoint push`, or an ETag
/// that is an MD5. Files that an interrupted fetch had completed are reused. Throws InputError when a URL matches
/// nothing, StorageError when bytes do not match their checksum or the store cannot be reached.
std::string fetch_data_list(const ObjectStore& store, const std::string& list, const std::string& cache,
                            const TransferOptions& options = {});

}  // namespace tessera::storage
