#pragma once
/// \file
/// A collective over pieces between two ranks: ring/ for sums and all_gather, the others here.

#include <tessera/wire/operation.h>
#include <tessera/wire/ring/executor.h>
#include <tessera/wire/tcp/mesh.h>

namespace tessera::wire::tcp {

/// Blocks until this rank's part is done. Throws Failure, see Mesh::wait().
void run(const Operation& operation, Mesh& mesh, ring::Scratch& scratch);

}  // namespace tessera::wire::tcp
