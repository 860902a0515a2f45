/// \file
/// tessera launch: runs any program as ranks, on this host or several (launch/start.h).

#include <tessera/base/log.h>
#include <tessera/launch/start.h>
#include <tools/tessera/commands.h>

namespace tessera::tool {

int launch_command(const Arguments& arguments) {
  const launch::LaunchCommand command = launch::parse_launch_command(arguments);
  if (!command.help)
    for (const std::string& note : command.notes) log::warning(note);
  return launch::start(command, own_program());
}

}  // namespace tessera::tool
