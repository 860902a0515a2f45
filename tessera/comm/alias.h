#pragma once
/// \file
/// One set of connections under several names: ranks that an axis of a mesh has in common with another group.

#include <tessera/comm/backend.h>

#include <memory>
#include <string>

namespace tessera::comm {

/// Does everything through `connections`, and is recorded under its own name, with its own count of collectives. They
/// run in the order in which they are started on either, which must be the same on every rank. close() leaves the
/// connections to whoever made them.
std::shared_ptr<Backend> make_alias(std::shared_ptr<Backend> connections, const std::string& name);

}  // namespace tessera::comm
