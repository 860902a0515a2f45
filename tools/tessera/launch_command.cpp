/// \file
/// tessera launch: runs any program as ranks, on this host or several (launch/start.h).

#include <tessera/launch/start.h>
#include <tools/tessera/commands.h>

namespace tessera::tool {

int launch_command(const Arguments& arguments) {
  return launch::start(launch::parse_launch_command(arguments), own_program());
}

}  // namespace tessera::tool
