#include <tessera/launch/doctor/diagnosis.h>

#include <algorithm>
#include <utility>

#include <tessera/base/text.h>

namespace tessera::launch {
namespace {

constexpr std::int64_t MiB = std::int64_t{1} << 20, GiB = std::int64_t{1} << 30;
constexpr std::int64_t built_after = 1'735'689'600;  // 2025-01-01: a clock before it has never been set

std::string bytes(std::int64_t count) {
  return count < 0 ? "unlimited" : format_bytes(static_cast<std::uint64_t>(count));
}
std::string number(std::int64_t count) { return count < 0 ? "unlimited" : concat(count); }

class Findings {
 public:
  void add(const char* check, Health bad, bool is_bad, std::string found, std::string remedy) {
    list_.push_back({check, is_bad ? bad : Health::good, std::move(found), is_bad ? std::move(remedy) : ""});
  }
  /// Adds the finding for a limit; -1: unlimited.
  void limit(const char* check, Health bad, std::int64_t have, std::int64_t need, const std::string& found,
             const std::string& remedy) {
    add(check, bad, have >= 0 && have < need, found, remedy);
  }
  std::vector<Finding> take() { return std::move(list_); }

 private:
  std::vector<Finding> list_;
};

void judge_processors(const Readings& r, Findings& out) {
  const double usable = std::min<double>(r.processors, r.processor_quota.value_or(r.processors));
  out.add("processors", Health::warning, r.ranks > usable, concat(r.processors, " usable, ranks: ", r.ranks),
          concat("start at most ", std::max(1, static_cast<int>(usable)),
                 " ranks here, or ask the scheduler for more (Slurm: --cpus-per-task)"));
  if (r.processor_quota)
    out.add("processor quota", Health::warning, *r.processor_quota < 0.9 * r.processors,
            concat(format_real(*r.processor_quota, 3), " of ", r.processors, " processors"),
            "the cgroup throttles threads beyond it: raise the limit (Kubernetes: resources.limits.cpu) or set "
            "OMP_NUM_THREADS to the quota divided by the ranks");
  if (r.core_seconds.size() > 1) {
    std::vector<double> sorted = r.core_seconds;
    std::sort(sorted.begin(), sorted.end());
    const double ratio = sorted.back() / sorted[sorted.size() / 2];
    const auto slow = std::max_element(r.core_seconds.begin(), r.core_seconds.end()) - r.core_seconds.begin();
    out.add("slow cores", Health::warning, ratio > 2, concat("slowest takes ", format_real(ratio, 3), " x the median"),
            concat("the usable processor number ", slow,
                   " (from 0) holds all others up: check for heat or throttling, or exclude it with taskset"));
  }
  if (r.frequency_cap)
    out.add("frequency", Health::warning, *r.frequency_cap < 0.7,
            concat(static_cast<int>(*r.frequency_cap * 100), "% of the processor's highest is allowed"),
            "cpupower frequency-set --max FREQUENCY (root), or switch the power-saving profile off");
}

void judge_memory(const Readings& r, Findings& out) {
  out.add("free memory", Health::failure, r.available_memory < GiB * r.ranks, bytes(r.available_memory),
          "less than 1 GiB for each rank: end other programs on this machine (tessera top), or raise the job's memory "
          "limit");
  out.add("huge pages", Health::warning, r.total_memory > 0 && r.reserved_huge_pages > r.total_memory / 4,
          concat(bytes(r.reserved_huge_pages), " reserved and unused"),
          "tessera does not use reserved huge pages: sysctl vm.nr_hugepages=0 releases them");
  if (r.zone_reclaim)
    out.add("NUMA reclaim", Health::warning, *r.zone_reclaim != 0, concat("vm.zone_reclaim_mode = ", *r.zone_reclaim),
            "sysctl vm.zone_reclaim_mode=0: otherwise a NUMA node drops cached data although another has free memory");
  if (r.overcommit)
    out.add("overcommit", Health::warning, *r.overcommit == 2, concat("vm.overcommit_memory = ", *r.overcommit),
            "sysctl vm.overcommit_memory=0: otherwise reserved but unused address space counts as memory");
  // Processes of one host exchange tensors through shared memory; 64 MiB (Docker's default) works, but slowly.
  out.add("shared memory", !r.shared_memory || *r.shared_memory < 8 * MiB ? Health::failure : Health::warning,
          !r.shared_memory || *r.shared_memory < 256 * MiB,
          r.shared_memory ? concat(bytes(*r.shared_memory), " free in /dev/shm") : "/dev/shm cannot be used",
          "docker run --shm-size=2g, in Kubernetes an emptyDir with medium: Memory at /dev/shm; remove files that "
          "former jobs "
          "left there");
}

void judge_limits(const Readings& r, Findings& out) {
  out.limit("open files", Health::failure, r.open_files, 1024, number(r.open_files), "ulimit -n 65536 before the job");
  out.limit("processes", Health::failure, r.processes, 64 * r.ranks, number(r.processes),
            "ulimit -u unlimited before the job: every thread counts");
  if (r.group_tasks)
    out.limit("tasks of the group", Health::failure, *r.group_tasks, 64 * r.ranks, number(*r.group_tasks),
              "raise pids.max of the cgroup (Docker: --pids-limit, systemd: TasksMax): every thread counts");
  out.limit("locked memory", Health::warning, r.locked_memory, MiB, bytes(r.locked_memory),
            "ulimit -l unlimited: InfiniBand and pinned buffers need it");
  out.limit("file size", Health::failure, r.file_bytes, GiB, bytes(r.file_bytes),
            "ulimit -f unlimited: a checkpoint file would be cut off");
  out.limit("address space", Health::failure, r.address_space, 16 * GiB, bytes(r.address_space),
            "ulimit -v unlimited: libraries and shared buffers reserve more than they use");
}

void judge_folders(const Readings& r, Findings& out) {
  out.add("output folder", Health::failure, !r.folder_writable, r.folder,
          concat("it is not writable: mount it writable, change its owner, or choose another --folder"));
  out.add("disk space", r.folder_bytes < GiB ? Health::failure : Health::warning, r.folder_bytes < 10 * GiB,
          concat(bytes(r.folder_bytes), " free"), "remove old checkpoints (--save_total_limit) or use another disk");
  if (r.folder_files)
    out.limit("files on disk", Health::failure, *r.folder_files, 1000, concat(*r.folder_files, " more fit"),
              "the file system is out of inodes (df -i): remove small files");
  if (r.write_bytes_per_second)
    out.add("disk speed", Health::warning, *r.write_bytes_per_second < 20e6,
            concat(format_bytes(static_cast<std::uint64_t>(*r.write_bytes_per_second)), "/s"),
            "checkpoints will delay the run: write to a local disk, or save less often (--save_steps)");
  out.add("temporary folder", Health::failure, !r.temporary_writable, r.temporary_writable ? "writable" : "read-only",
          "set TMPDIR to a folder that can be written");
}

void judge_clock_and_network(const Readings& r, Findings& out) {
  out.add("clock", Health::failure, r.unix_seconds < built_after, concat(r.unix_seconds, " s since 1970"),
          "the clock was never set: timedatectl set-ntp true, or start chronyd");
  if (r.clock_source)
    out.add("clock source", Health::warning, *r.clock_source == "hpet" || *r.clock_source == "acpi_pm", *r.clock_source,
            "reading the time takes microseconds: the kernel found the TSC unstable; see dmesg");
  out.add("host name", Health::failure, !r.host_resolves, r.host,
          "this host's name has no address: add it to /etc/hosts or repair DNS; other ranks use this name");
  out.add("listening", Health::failure, !r.can_listen, r.can_listen ? "127.0.0.1 answers" : "no port of 127.0.0.1",
          "ip link set lo up, or allow local sockets in the container's policy");
  if (r.ports)
    out.limit("port range", Health::warning, *r.ports, 1000, concat(*r.ports, " ports"),
              "sysctl net.ipv4.ip_local_port_range='32768 60999'");
}

}  // namespace

const char* word_of(Health health) {
  return health == Health::good ? "good" : health == Health::warning ? "warning" : "failure";
}

std::vector<Finding> diagnose(const Readings& readings) {
  Findings out;
  judge_processors(readings, out);
  judge_memory(readings, out);
  judge_limits(readings, out);
  judge_folders(readings, out);
  judge_clock_and_network(readings, out);
  return out.take();
}

Health worst(std::span<const Finding> findings) {
  Health health = Health::good;
  for (const Finding& finding : findings) health = std::max(health, finding.health);
  return health;
}

std::string table_of(const std::string& host, std::span<const Finding> findings) {
  std::string out = concat(host, ": ", word_of(worst(findings)), "\n");
  for (const Finding& finding : findings) {
    const std::string health = word_of(finding.health);
    out += concat("  ", finding.check, std::string(20 - std::min<std::size_t>(finding.check.size(), 19), ' '), health,
                  std::string(9 - health.size(), ' '), finding.found, "\n");
    if (!finding.remedy.empty()) out += concat("      -> ", finding.remedy, "\n");
  }
  return out;
}

Value value_of(std::span<const Finding> findings) {
  std::vector<Value> list;
  for (const Finding& finding : findings)
    list.push_back(Value::make_object({{"check", Value::of(finding.check)},
                                       {"health", Value::of(word_of(finding.health))},
                                       {"found", Value::of(finding.found)},
                                       {"remedy", Value::of(finding.remedy)}}));
  return Value::make_array(std::move(list));
}

Value value_of(const std::string& host, std::span<const Finding> findings) {
  return Value::make_object(
      {{"host", Value::of(host)}, {"health", Value::of(word_of(worst(findings)))}, {"findings", value_of(findings)}});
}

}  // namespace tessera::launch
