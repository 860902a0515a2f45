#pragma once
/// \file
/// The text of an error, for tests that check it.

#include <string>

#include <tessera/base/error.h>

namespace tessera::testing {

/// Returns the message of the `Thrown` that `act` throws; "" if it throws nothing. Other exceptions propagate.
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
