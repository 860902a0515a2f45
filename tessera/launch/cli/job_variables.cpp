#include <tessera/launch/cli/job_variables.h>

#include <cstdlib>

namespace tessera::launch {

std::function<std::optional<std::string>(const std::string&)> job_variables(const RankEnvironment& environment) {
  std::optional<std::string> ranks;
  if (environment.launcher != "none") ranks = std::to_string(environment.world_size);
  return [ranks](const std::string& name) -> std::optional<std::string> {
    if (name == "WORLD_SIZE" && ranks) return ranks;
    const char* text = std::getenv(name.c_str());
    return text == nullptr ? std::nullopt : std::optional<std::string>(text);
  };
}

}  // namespace tessera::launch
