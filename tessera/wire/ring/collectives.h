#pragma once
/// \file
/// Every collective over messages between two ranks: schedules of this folder for reductions and all_gather, trees and
/// direct messages for the others.

#include <tessera/wire/operation.h>
#include <tessera/wire/ring/executor.h>

namespace tessera::wire::ring {

/// This rank's place in a group.
struct Ranks {
  int rank = 0, size = 1;
};

/// Blocks until this rank's part is done. Rethrows the link's exceptions. `operation` is a collective, not a message.
void run(const Operation& operation, const Ranks& ranks, Link& link, Scratch& scratch);

}  // namespace tessera::wire::ring
