#include <tessera/comm/watch.h>

#include <tessera/base/error.h>

namespace tessera::comm {

std::optional<std::string> stop_requested() { return life().stop_reason(); }

void throw_if_stopped() {
  if (const auto why = stop_requested()) throw Error(*why);
}

}  // namespace tessera::comm
