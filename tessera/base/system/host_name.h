#pragma once
/// \file
/// The name of this host, for people and for names of files.

#include <string>

namespace tessera {

/// `unknown` where the kernel has none.
std::string host_name(const std::string& unknown);

}  // namespace tessera
