#pragma once
/// \file
/// The orderly end of connections when the process ends without having closed its groups.

#include <tessera/wire/tcp/mesh.h>

#include <memory>

namespace tessera::wire::tcp {

/// When the process calls exit(), closes the mesh, and waits (at most 2 s for all meshes) until its peers' hosts have
/// what it sent: a connection that the kernel resets would lose it.
void end_at_exit(const std::shared_ptr<Mesh>& mesh);

}  // namespace tessera::wire::tcp
