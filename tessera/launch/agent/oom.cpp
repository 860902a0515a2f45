#include <tessera/launch/agent/oom.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <unistd.h>

namespace tessera::launch {
namespace {

constexpr const char* machine_file = "/proc/vmstat";

std::string cgroup_file_of(pid_t pid) { return oom_counter_file(read_file_or_empty(concat("/proc/", pid, "/cgroup"))); }

/// Returns the limit of the cgroup whose counter is in `file`, as in "limit 512 MiB"; empty if it has none.
std::string limit_text(const std::string& file) {
  const std::string folder = file.substr(0, file.find_last_of('/') + 1);
  for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
    const auto bytes = parse_int(trim(read_file_or_empty(folder + name)));
    if (bytes && *bytes > 0 && *bytes < (std::int64_t{1} << 60))  // v1 expresses "no limit" with a huge number
      return concat(", limit ", format_bytes(static_cast<std::uint64_t>(*bytes)));
  }
  return "";
}

}  // namespace

std::string oom_counter_file(const std::string& cgroup_text, const std::string& mount) {
  std::string unified;
  for (const std::string& line : split(cgroup_text, '\n')) {  // "4:memory:/path", "0::/path"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string path = line.substr(second + 1) == "/" ? "" : line.substr(second + 1);
    if (line.substr(first + 1, second - first - 1) == "memory")
      return concat(mount, "/memory", path, "/memory.oom_control");
    if (line.starts_with("0::")) unified = concat(mount, path, "/memory.events");
  }
  return unified;
}

std::optional<std::int64_t> parse_oom_kills(const std::string& text) {
  for (const std::string& line : split(text, '\n')) {
    if (line.starts_with("oom_kill ")) return parse_int(trim(line.substr(9)));
  }
  return std::nullopt;
}

OomWatch::OomWatch() {
  for (const std::string& file : {std::string(machine_file), cgroup_file_of(::getpid())}) {
    if (const auto kills = parse_oom_kills(read_file_or_empty(file))) seen_[file] = *kills;
  }
}

void OomWatch::look(pid_t pid) {
  const std::string file = cgroup_file_of(pid);
  if (file.empty()) return;
  file_of_[pid] = file;
  if (seen_.contains(file)) return;  // the first value is kept as the reference for later ones
  if (const auto kills = parse_oom_kills(read_file_or_empty(file))) seen_[file] = *kills;
}

std::string OomWatch::explain(pid_t pid) {
  const auto known = file_of_.find(pid);
  const std::string own = known != file_of_.end() ? known->second : cgroup_file_of(pid);
  std::string result;
  for (const std::string& file : {own, std::string(machine_file)}) {
    const auto before = seen_.find(file);
    const auto now = parse_oom_kills(read_file_or_empty(file));
    if (before == seen_.end() || !now) continue;
    if (*now > before->second && result.empty()) {
      result = file == machine_file
                   ? "the kernel's out-of-memory killer ran on this machine: reduce the job's memory use, or use a "
                     "larger machine"
                   : concat("the kernel ended it because its cgroup was out of memory (", file, limit_text(file), ")");
    }
    before->second = *now;
  }
  return result;
}

}  // namespace tessera::launch
