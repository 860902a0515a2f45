#pragma once
/// \file
/// What an exception says, for people.

#include <exception>
#include <string>

namespace tessera::comm {

/// what(), without the C++ backtrace of LibTorch that c10's errors carry: it tells a user nothing.
std::string cause_text(const std::exception& error);

}  // namespace tessera::comm
