#include <tessera/base/system/host_name.h>

#include <unistd.h>

namespace tessera {

std::string host_name(const std::string& unknown) {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : unknown;
}

}  // namespace tessera
