#pragma once
/// \file
/// The name of this host, for display and for file names.

#include <string>

namespace tessera {

/// Returns `unknown` if the kernel has no name.
std::string host_name(const std::string& unknown);

}  // namespace tessera
