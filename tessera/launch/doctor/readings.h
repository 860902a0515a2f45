#pragma once
/// \file
/// tessera/launch/doctor/: `tessera doctor` reads the state of a machine before a job and judges it. This header: the
/// readings, plain numbers so that tests can inject faults.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// One host's readings. An empty optional: not available on this machine, so it is not judged.
struct Readings {
  std::string host;
  bool host_resolves = true;  ///< the host's own name resolves to an address
  bool can_listen = true;     ///< listening on a TCP port of 127.0.0.1 works
  std::int64_t unix_seconds = 0;
  std::optional<std::string> clock_source;  ///< "tsc", "hpet", ...
  int ranks = 1;                            ///< number of ranks planned for this host
  int processors = 1;                       ///< available to this process
  std::optional<double> processor_quota;    ///< limit of the cgroup, in processors
  std::vector<double> core_seconds;         ///< CPU time of the same work on each of the processors
  std::optional<double> frequency_cap;      ///< highest allowed frequency / highest frequency of the processor
  std::int64_t available_memory = 0;        ///< bytes
  std::int64_t total_memory = 0;            ///< bytes
  std::int64_t reserved_huge_pages = 0;     ///< bytes reserved for huge pages and unused
  std::optional<std::int64_t> zone_reclaim;
  std::optional<std::int64_t> overcommit;
  std::optional<std::int64_t> ports;  ///< size of the ephemeral port range
  std::int64_t open_files = -1, processes = -1, locked_memory = -1, file_bytes = -1,
               address_space = -1;            ///< soft limits (ulimit), -1: none
  std::optional<std::int64_t> group_tasks;    ///< number of additional tasks that the cgroup allows
  std::optional<std::int64_t> shared_memory;  ///< bytes free in /dev/shm; nullopt: the folder does not exist
  std::string folder;                         ///< folder that the run will write to
  bool folder_writable = true;
  std::int64_t folder_bytes = 0;                 ///< bytes free in `folder`
  std::optional<std::int64_t> folder_files;      ///< number of files that can still be created in `folder`
  std::optional<double> write_bytes_per_second;  ///< measured by writing and syncing 32 MiB in `folder`
  bool temporary_writable = true;                ///< TMPDIR, or else /tmp
};

/// Reads this machine in about a second; writes 32 MiB to `folder` and removes them. `root`: the parent folder of
/// /proc, /sys and /dev/shm (for tests). Throws InputError when `folder` does not exist.
Readings read_machine(const std::string& folder, int ranks, const std::string& root = "");

}  // namespace tessera::launch
