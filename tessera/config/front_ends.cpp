#include <tessera/config/front_ends.h>

namespace tessera::config {

void read_front_ends(Resolved& resolved, Problems& problems, const GetEnvironment& environment) {
  (void)resolved, (void)problems, (void)environment;
}

}  // namespace tessera::config
