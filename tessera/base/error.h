#pragma once
/// \file
/// base/: the foundation of every layer, independent of tensors: errors, log, text helpers, files, and strict JSON/YAML
/// values that know their position. This header: error types and the exit codes they map to.
///
/// An error names what was wrong, where (file:line or rank), the rule, the numbers, and the remedy.
/// Setup errors throw; libraries never call exit(). `main` turns an Error into its exit code.

#include <tessera/base/text.h>
#include <stdexcept>
#include <string>

namespace tessera {

/// Process exit codes of the program `tessera` (docs/configuration.md).
enum class ExitCode : int {
  done = 0,
  failed = 1,         ///< failed while running
  bad_input = 2,      ///< bad configuration or input; nothing was written
  stopped = 3,        ///< stopped on request (SIGTERM) after saving
  interrupted = 130,  ///< SIGINT
};

/// Something went wrong while running.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::failed)
      : std::runtime_error(message), code_(code) {}  ///< `message`: as the user reads it; `code`: what main() returns
  ExitCode exit_code() const noexcept { return code_; }  ///< exit status for the program

 private:
  ExitCode code_;
};

/// The user's configuration, file or argument is at fault: exit code 2, nothing written.
class InputError : public Error {
 public:
  explicit InputError(const std::string& message) : Error(message, ExitCode::bad_input) {}  ///< what, where, remedy
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);
}  // namespace detail

}  // namespace tessera

/// The only macro: checks an internal invariant. Throws tessera::Error with the condition, file:line and the further
/// arguments, e.g. TESSERA_CHECK(a == b, "sizes differ: ", a, " and ", b). Never compiled out.
#define TESSERA_CHECK(condition, ...)                                                                  \
  do {                                                                                                 \
    if (!(condition)) [[unlikely]]                                                                     \
      ::tessera::detail::check_failed(#condition, __FILE__, __LINE__, ::tessera::concat(__VA_ARGS__)); \
  } while (false)
