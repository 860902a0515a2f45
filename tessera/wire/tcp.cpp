#include <tessera/wire/transport.h>

namespace tessera::wire {

std::shared_ptr<Transport> make_tcp(const Place& place, const std::string&) {
  throw Failure(Code::invalid, concat("the group '", place.name, "' needs tcp, which this build does not have yet."));
}

}  // namespace tessera::wire
