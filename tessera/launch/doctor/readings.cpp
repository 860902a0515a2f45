#include <tessera/launch/doctor/readings.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>
#include <thread>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/available_memory.h>
#include <tessera/launch/agent/unique_fd.h>

namespace tessera::launch {
namespace {

std::optional<std::string> word_in(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  if (in >> word) return word;
  return std::nullopt;
}

std::optional<std::int64_t> number_in(const std::string& path) {
  const auto word = word_in(path);
  return word ? parse_int(*word) : std::nullopt;
}

std::int64_t memory_row(const std::string& root, const std::string& key) {
  std::ifstream in(root + "/proc/meminfo");
  std::string name, rest;
  for (std::int64_t number = 0; in >> name >> number; std::getline(in, rest))
    if (name == key) return number;
  return 0;
}

std::int64_t limit_of(int resource) {
  struct rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<std::int64_t>::max()));
}

/// The cgroup folder of this process for a controller of version 1, or of version 2 (controller "").
std::optional<std::string> group_folder(const std::string& root, const std::string& controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const auto names = split(parts[1], ',');
    if (controller.empty() ? !parts[1].empty() : std::find(names.begin(), names.end(), controller) == names.end())
      continue;
    return concat(root, "/sys/fs/cgroup/", controller, controller.empty() ? "" : "/", parts[2]);
  }
  return std::nullopt;
}

std::optional<double> processor_quota(const std::string& root) {
  if (const auto folder = group_folder(root, "")) {
    std::ifstream in(*folder + "/cpu.max");
    double quota = 0, period = 0;
    if (in >> quota >> period && period > 0) return quota / period;  // "max" is not a number and means unlimited
  }
  const auto folder = group_folder(root, "cpu");
  if (!folder) return std::nullopt;
  const auto quota = number_in(*folder + "/cpu.cfs_quota_us"), period = number_in(*folder + "/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::int64_t> group_tasks(const std::string& root) {
  for (const char* controller : {"", "pids"}) {
    const auto folder = group_folder(root, controller);
    if (!folder) continue;
    const auto most = number_in(*folder + "/pids.max"), now = number_in(*folder + "/pids.current");
    if (most && now) return std::max<std::int64_t>(0, *most - *now);
  }
  return std::nullopt;
}

/// CPU seconds of a fixed piece of work on the calling thread, the best of five. CPU time excludes other jobs.
double seconds_of_work() {
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < 5; ++round) {
    timespec begin{}, end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    volatile std::uint64_t sum = 1;
    for (int i = 0; i < 2'000'000; ++i) sum = sum * 6364136223846793005U + 1442695040888963407U;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    best = std::min(
        best, static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  return best;
}

/// Times the same work on each processor that this process may use, one after another.
std::vector<double> time_cores() {
  std::vector<double> seconds;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return seconds;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    std::jthread([&seconds, core] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      if (sched_setaffinity(0, sizeof one, &one) == 0) seconds.push_back(seconds_of_work());
    }).join();
  }
  return seconds;
}

void read_disk(Readings& out) {
  struct statvfs disk{};
  if (statvfs(out.folder.c_str(), &disk) == 0) {
    out.folder_bytes = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
    if (disk.f_files > 0)
      out.folder_files = static_cast<std::int64_t>(disk.f_favail);  // some file systems have no inodes
  }
  std::string path = path_join(out.folder, ".tessera-doctor-XXXXXX");
  const UniqueFd file(mkstemp(path.data()));
  out.folder_writable = file.get() >= 0;
  if (!out.folder_writable) return;
  unlink(path.c_str());
  const std::vector<std::byte> bytes(std::size_t{4} << 20, std::byte{0x5a});
  const auto begin = std::chrono::steady_clock::now();
  try {
    for (int part = 0; part < 8; ++part) write_all(file.get(), bytes, path);
  } catch (const Error&) {
    return;  // a full disk is reported by its free space
  }
  if (fsync(file.get()) != 0) return;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  out.write_bytes_per_second = 8.0 * static_cast<double>(bytes.size()) / taken.count();
}

bool can_listen() {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return listener.get() >= 0 && bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
         listen(listener.get(), 1) == 0;
}

void read_names(Readings& out) {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) out.host = name.data();
  addrinfo* found = nullptr;
  out.host_resolves = getaddrinfo(out.host.c_str(), nullptr, nullptr, &found) == 0;
  if (found != nullptr) freeaddrinfo(found);
}

}  // namespace

Readings read_machine(const std::string& folder, int ranks, const std::string& root) {
  if (!is_directory(folder))
    throw InputError(
        concat(folder, " is not a folder: --folder must be the existing folder that the run will write to"));
  Readings out;
  out.folder = folder;
  out.ranks = ranks;
  read_names(out);
  out.can_listen = can_listen();
  out.unix_seconds = std::time(nullptr);
  out.clock_source = word_in(root + "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  out.core_seconds = time_cores();
  out.processors = std::max<int>(1, static_cast<int>(out.core_seconds.size()));
  out.processor_quota = processor_quota(root);
  const std::string cpu = root + "/sys/devices/system/cpu/cpu0/cpufreq/";
  const auto allowed = number_in(cpu + "scaling_max_freq"), highest = number_in(cpu + "cpuinfo_max_freq");
  if (allowed && highest && *highest > 0)
    out.frequency_cap = static_cast<double>(*allowed) / static_cast<double>(*highest);
  out.available_memory = available_bytes(root);
  out.total_memory = memory_row(root, "MemTotal:") * 1024;
  out.reserved_huge_pages = memory_row(root, "HugePages_Free:") * memory_row(root, "Hugepagesize:") * 1024;
  out.zone_reclaim = number_in(root + "/proc/sys/vm/zone_reclaim_mode");
  out.overcommit = number_in(root + "/proc/sys/vm/overcommit_memory");
  std::ifstream range(root + "/proc/sys/net/ipv4/ip_local_port_range");
  if (std::int64_t first = 0, last = 0; range >> first >> last) out.ports = last - first + 1;
  out.open_files = limit_of(RLIMIT_NOFILE);
  out.processes = limit_of(RLIMIT_NPROC);
  out.locked_memory = limit_of(RLIMIT_MEMLOCK);
  out.file_bytes = limit_of(RLIMIT_FSIZE);
  out.address_space = limit_of(RLIMIT_AS);
  out.group_tasks = group_tasks(root);
  const std::string shared = root + "/dev/shm";
  struct statvfs disk{};
  if (statvfs(shared.c_str(), &disk) == 0 && access(shared.c_str(), W_OK) == 0)
    out.shared_memory = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  read_disk(out);
  const char* temporary = std::getenv("TMPDIR");
  out.temporary_writable = access(temporary != nullptr && *temporary != '\0' ? temporary : "/tmp", W_OK | X_OK) == 0;
  return out;
}

}  // namespace tessera::launch
