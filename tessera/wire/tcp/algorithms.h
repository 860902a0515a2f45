#pragma once
/// \file
/// Collectives over the mesh's connections, with the algorithms of ring/collectives.h.

#include <tessera/wire/operation.h>
#include <tessera/wire/ring/executor.h>
#include <tessera/wire/tcp/mesh.h>

namespace tessera::wire::tcp {

/// Blocks until this rank's part is done. Throws Failure as Mesh::wait() does.
void run(const Operation& operation, Mesh& mesh, ring::Scratch& scratch);

}  // namespace tessera::wire::tcp
