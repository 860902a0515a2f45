#include <tessera/comm/cause.h>

#include <c10/util/Exception.h>

namespace tessera::comm {

std::string cause_text(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error == nullptr ? error.what() : c10_error->what_without_backtrace();
}

}  // namespace tessera::comm
