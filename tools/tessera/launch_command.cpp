/// \file
/// tessera launch: runs any program as N ranks (launch/launcher.h).

#include <tessera/launch/command_line.h>
#include <tools/tessera/commands.h>
#include <iostream>

namespace tessera::tool {

int launch_command(const Arguments& arguments) {
  const launch::LaunchCommand request = launch::parse_launch_command(arguments);
  if (request.help) {
    std::cout << launch::launch_help();
    return 0;
  }
  return launch::run(request.command, request.options);
}

}  // namespace tessera::tool
