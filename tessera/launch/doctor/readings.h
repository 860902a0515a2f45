#pragma once
/// \file
/// tessera/launch/doctor/: what `tessera doctor` reads of a machine before a job, and what it makes of it. This header:
/// the readings. They are plain numbers, so that tests can plant faults.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// What one host says of itself. An empty optional is something that this machine does not tell: it is not judged.
struct Readings {
  std::string host;
  bool host_resolves = true;  ///< its own name has an address
  bool can_listen = true;     ///< a TCP port of 127.0.0.1 can be listened at
  std::int64_t unix_seconds = 0;
  std::optional<std::string> clock_source;  ///< "tsc", "hpet", ...
  int ranks = 1;                            ///< that are to run on this host
  int processors = 1;                       ///< that this process may run on
  std::optional<double> processor_quota;    ///< what the control group allows, in processors
  std::vector<double> core_seconds;         ///< CPU time of the same work on each of them
  std::optional<double> frequency_cap;      ///< highest frequency allowed / highest of the processor
  std::int64_t available_memory = 0;        ///< bytes
  std::int64_t total_memory = 0;            ///< bytes
  std::int64_t reserved_huge_pages = 0;     ///< bytes set aside for huge pages and unused
  std::optional<std::int64_t> zone_reclaim;
  std::optional<std::int64_t> overcommit;
  std::optional<std::int64_t> ports;  ///< in the range of ports that the kernel gives out
  std::int64_t open_files = -1, processes = -1, locked_memory = -1, file_bytes = -1,
               address_space = -1;            ///< soft limits (ulimit), -1: none
  std::optional<std::int64_t> group_tasks;    ///< further tasks that the control group allows
  std::optional<std::int64_t> shared_memory;  ///< bytes free in /dev/shm; none: there is no such folder
  std::string folder;                         ///< where the run will write
  bool folder_writable = true;
  std::int64_t folder_bytes = 0;                 ///< free there
  std::optional<std::int64_t> folder_files;      ///< further files it takes
  std::optional<double> write_bytes_per_second;  ///< 32 MiB written and synced there
  bool temporary_writable = true;                ///< TMPDIR, else /tmp
};

/// Reads this machine in about a second; writes 32 MiB into `folder` and removes them. `root`: where /proc,
/// /sys and /dev/shm are looked for (tests). Throws InputError when `folder` does not exist.
Readings read_machine(const std::string& folder, int ranks, const std::string& root = "");

}  // namespace tessera::launch
