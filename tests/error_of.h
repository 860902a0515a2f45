#pragma once
/// \file
/// The text of an error, for tests of what it says.

#include <string>

#include <tessera/base/error.h>

namespace tessera::testing {

/// What the `Thrown` that `act` throws says; "" when it throws nothing. Other exceptions pass.
template <class Thrown = InputError, class Act>
std::string error_of(Act&& act) {
  try {
    act();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "";
}

}  // namespace tessera::testing
