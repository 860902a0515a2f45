#include <tessera/launch/agent/available_memory.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <tuple>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/oom.h>

namespace tessera::launch {
namespace {

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  return in >> word ? parse_int(word) : std::nullopt;
}

/// Returns the number after `key` in a file of lines "key number"; 0 if absent.
std::int64_t number_of(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string name, rest;
  for (std::int64_t number = 0; in >> name >> number; std::getline(in, rest))
    if (name == key) return number;
  return 0;
}

}  // namespace

std::int64_t available_bytes(const std::string& root) {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  if (const std::int64_t kibibytes = number_of(root + "/proc/meminfo", "MemAvailable:"); kibibytes > 0)
    bytes = kibibytes * 1024;
  const std::string counter = oom_counter_file(read_file_or_empty(root + "/proc/self/cgroup"), root + "/sys/fs/cgroup");
  const std::string folder = counter.substr(0, counter.find_last_of('/') + 1);
  // "max" (v2) is not a number, and v1 expresses "no limit" with a huge one. Inactive file pages can be reclaimed.
  for (const auto& [most, now, idle] :
       {std::tuple("memory.max", "memory.current", "inactive_file"),
        std::tuple("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")}) {
    const auto limit = number_in(folder + most), used = number_in(folder + now);
    if (!limit || !used) continue;
    const std::int64_t held = std::max<std::int64_t>(0, *used - number_of(folder + "memory.stat", idle));
    bytes = std::min(bytes, std::max<std::int64_t>(0, *limit - held));
  }
  return bytes;
}

}  // namespace tessera::launch
