#pragma once
/// \file
/// Data out of an object store, as files that the rest reads: once for all runs and all processes of a host.

#include <tessera/storage/push.h>

#include <string>

namespace tessera::storage {

/// A list as --train_file takes it (corpus/data_list.h) with every s3:// of it fetched below `cache` and its local path
/// in its place; weights stay. An URL is one object, a "folder" (everything below it) or a pattern (`*`, `?`, `[a-z]`,
/// within one level). Of a .bin its .idx comes along.
///
/// What one URL means lies in a folder whose name is made of URL, sizes and ETags, so an object that has changed is
/// fetched anew, and what is there is not fetched again. The folder appears whole, by a rename, when all is on the disk
/// and every object has the checksum that the store knows: the CRC-32C that `tessera checkpoint push` noted, or an ETag
/// that is an MD5. Files that an interrupted fetch had finished are kept. Throws InputError when there is nothing at an
/// URL, StorageError when bytes are others than their checksum says, or the store cannot be reached.
std::string fetch_data_list(const ObjectStore& store, const std::string& list, const std::string& cache,
                            const TransferOptions& options = {});

}  // namespace tessera::storage
