#pragma once
/// \file
/// Shares one set of connections between several group names: a mesh axis whose ranks equal those of another group.

#include <tessera/comm/backend.h>

#include <memory>
#include <string>

namespace tessera::comm {

/// Returns a backend that runs every operation through `connections` but is recorded under its own name and counts its
/// own collectives. Operations on either run in the order in which they are started, which must be the same on every
/// rank. close() does not close `connections`: their owner does.
std::shared_ptr<Backend> make_alias(std::shared_ptr<Backend> connections, const std::string& name);

}  // namespace tessera::comm
