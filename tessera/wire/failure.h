#pragma once
/// \file
/// wire/: communication between processes on raw memory: transports, stores, groups, their record. Without tensors:
/// comm/ gives tensors to it, c/ other languages. This header: why an operation failed, as a program may ask.

#include <tessera/base/error.h>

#include <cstdint>
#include <exception>
#include <string>

namespace tessera::wire {

/// The numbers are those of c/tessera_c.h.
enum class Code : std::int32_t {
  ok,
  invalid,    ///< an argument that cannot be
  peer_lost,  ///< another rank is gone, has left or failed
  timeout,
  mismatch,  ///< the ranks started different operations
  aborted,
  shut_down,
  store,
  system,  ///< anything else
};

/// An Error whose kind is known.
class Failure : public Error {
 public:
  Failure(Code code, const std::string& message) : Error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

/// `otherwise` for exceptions that are no Failure.
inline Code code_of(const std::exception& error, Code otherwise = Code::system) {
  const auto* failure = dynamic_cast<const Failure*>(&error);
  return failure != nullptr ? failure->code() : otherwise;
}

}  // namespace tessera::wire
