#pragma once
/// \file
/// What `tessera train` does about s3:// before anything else.

#include <tessera/launch/cli/environment.h>

namespace tessera::config {
struct Resolved;
}

namespace tessera::tool {

/// Fetches what --train_file, --validation_file and --resume_from_checkpoint name in object stores, and puts the local
/// places there; several processes of one host fetch it once. Throws InputError for wrong
/// credentials and names, StorageError when a store is not there.
void fetch_objects(config::Resolved& resolved, const launch::RankEnvironment& environment);

}  // namespace tessera::tool
