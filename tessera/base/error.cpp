#include <tessera/base/error.h>

namespace tessera::detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(
      concat("internal check failed: ", condition, message.empty() ? "" : ": ", message, " (", file, ":", line, ")"));
}

}  // namespace tessera::detail
