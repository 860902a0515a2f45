#pragma once
/// \file
/// The collectives of a group: the library's own where it computes what Tessera promises, else ring/ over its messages.

#include <tessera/wire/mpi/channel.h>
#include <tessera/wire/operation.h>
#include <tessera/wire/ring/executor.h>

#include <memory>

namespace tessera::wire::mpi {

/// Blocks until this rank's part is done. Throws Failure as Channel does.
void run(const Operation& operation, Channel& channel, const std::shared_ptr<ring::Scratch>& scratch);

}  // namespace tessera::wire::mpi
