#include <tessera/base/processor.h>

#include <tessera/base/text.h>

#include <sys/utsname.h>
#include <fstream>

namespace tessera {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return trim(line.substr(line.find(':') + 1));
  utsname name = {};
  return uname(&name) == 0 ? name.machine : "unknown";
}

}  // namespace tessera
