#include <tessera/base/user_folders.h>

#include <tessera/base/file.h>

#include <cstdlib>

namespace tessera {

std::optional<std::string> user_cache_folder() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = set("XDG_CACHE_HOME"); !cache.empty()) return path_join(cache, "tessera");
  if (const std::string home = set("HOME"); !home.empty()) return path_join(home, ".cache/tessera");
  return std::nullopt;
}

}  // namespace tessera
