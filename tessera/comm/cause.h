#pragma once
/// \file
/// User-facing text of an exception.

#include <exception>
#include <string>

namespace tessera::comm {

/// what() without the C++ backtrace that LibTorch's c10 errors append, which does not help users.
std::string cause_text(const std::exception& error);

}  // namespace tessera::comm
