#pragma once
/// \file
/// Handles s3:// paths of `tessera train` before anything else.

#include <tessera/launch/cli/environment.h>

namespace tessera::config {
struct Resolved;
}

namespace tessera::tool {

/// Fetches the objects that --train_file, --validation_file and --resume_from_checkpoint refer to, and replaces them by
/// local paths; several processes of one host fetch them once. Throws InputError for wrong credentials and names,
/// StorageError when a store is unreachable.
void fetch_objects(config::Resolved& resolved, const launch::RankEnvironment& environment);

}  // namespace tessera::tool
