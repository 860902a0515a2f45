/// \file
/// tessera launch: runs any program as ranks, on this host or several (launch/agent/start.h).

#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/launch/agent/start.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

namespace tessera::tool {
namespace {

bool is_own_training(const Arguments& command) {
  const auto name = [](const std::string& path) { return std::filesystem::path(path).filename(); };
  return command.size() > 1 && command[1] == "train" && name(command[0]) == name(own_program());
}

/// Checks the flags and files of our own training before ranks start, with the variables that the ranks will have. The
/// ranks themselves check paths, because the job's own output changes them, and jobs of several hosts, whose files may
/// exist only there.
void check_training(const launch::LaunchCommand& command) {
  if (!is_own_training(command.command) || !command.emit.empty() || !command.hosts.empty() ||
      command.options.num_machines > 1)
    return;
  Arguments flags(command.command.begin() + 2, command.command.end());
  for (const char* shows : {"--print_config", "--print-config"}) std::erase(flags, shows);
  const auto asks = [&](const char* name) { return std::find(flags.begin(), flags.end(), name) != flags.end(); };
  if (asks("--help") || asks("-h")) return;
  std::map<std::string, std::string> variables = {{"WORLD_SIZE", std::to_string(command.options.num_processes)}};
  for (const std::string& word : command.exports)
    if (const std::size_t equals = word.find('='); equals != std::string::npos)
      variables[word.substr(0, equals)] = word.substr(equals + 1);
  config::Problems problems;
  config::resolve_flags(flags, problems, [&](const std::string& name) -> std::optional<std::string> {
    if (const auto found = variables.find(name); found != variables.end()) return found->second;
    const char* own = std::getenv(name.c_str());
    return own == nullptr ? std::nullopt : std::optional<std::string>(own);
  });
  config::throw_if_any(problems);
}

}  // namespace

int launch_command(const Arguments& arguments) {
  const launch::LaunchCommand command = launch::parse_launch_command(arguments);
  if (!command.help) {
    for (const std::string& note : command.notes) log::warning(note);
    check_training(command);
  }
  return launch::start(command, own_program());
}

}  // namespace tessera::tool
