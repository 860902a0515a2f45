#pragma once
/// \file
/// wire/: communication between processes on raw memory: transports, stores, groups and their record. Torch-free: comm/
/// adds tensors, c/ serves other languages. This header: machine-readable reasons why an operation failed.

#include <tessera/base/error.h>

#include <cstdint>
#include <exception>
#include <string>

namespace tessera::wire {

/// The enumerators' values are those of c/tessera_c.h.
enum class Code : std::int32_t {
  ok,
  invalid,    ///< an invalid argument
  peer_lost,  ///< another rank is gone, has left or failed
  timeout,
  mismatch,  ///< the ranks started different operations
  aborted,
  shut_down,
  store,
  system,  ///< anything else
};

/// An Error with a code.
class Failure : public Error {
 public:
  Failure(Code code, const std::string& message) : Error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

/// The code of a Failure; `otherwise` for other exceptions.
inline Code code_of(const std::exception& error, Code otherwise = Code::system) {
  const auto* failure = dynamic_cast<const Failure*>(&error);
  return failure != nullptr ? failure->code() : otherwise;
}

}  // namespace tessera::wire
