#pragma once
/// \file
/// c/: the C interface (tessera_c.h) over wire/. This header: converts exceptions to a status and the text of the
/// thread's last error.

#include <tessera/c/tessera_c.h>
#include <tessera/wire/failure.h>
#include <tessera/wire/inside.h>

#include <cstdint>
#include <exception>
#include <new>
#include <string>

namespace tessera::c {

/// Stores the text for tessera_last_error() and returns the status.
tessera_status remember(wire::Code code, const char* text) noexcept;

/// Runs `body` and converts its exception to a status.
template <class Body>
tessera_status guarded(const Body& body) noexcept {
  const wire::Inside inside;
  try {
    body();
    return TESSERA_OK;
  } catch (const std::bad_alloc&) {
    return remember(wire::Code::system, "out of memory");
  } catch (const std::exception& error) {
    return remember(wire::code_of(error), error.what());
  } catch (...) {
    return remember(wire::Code::system, "an exception that is not a std::exception");
  }
}

/// Dereferences the argument named `name`; throws Failure (invalid) if it is null.
template <class T>
T& given(T* argument, const char* name) {
  if (argument == nullptr) throw wire::Failure(wire::Code::invalid, concat(name, " is null."));
  return *argument;
}

/// An optional string.
inline std::string text_or(const char* text, const char* otherwise = "") { return text == nullptr ? otherwise : text; }

/// Copies a text to the caller's buffer as described in tessera_c.h.
void copy_out(const std::string& text, char* buffer, int64_t capacity, int64_t* needed);

}  // namespace tessera::c
