#pragma once
/// \file
/// Compares the machines of a whole allocation: whether they are alike, whether their clocks agree, how fast each pair
/// of them is connected. Maps plain numbers to findings, so that tests can inject faults.

#include <tessera/base/value.h>
#include <tessera/launch/doctor/diagnosis.h>
#include <tessera/launch/doctor/links.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// One host's report to the other hosts of the allocation.
struct HostReport {
  std::string host;            ///< its name
  std::string version;         ///< version of tessera installed on the host
  std::string processor;       ///< "AMD EPYC 9B14"
  int processors = 1;          ///< available to its ranks
  double core_seconds = 0;     ///< CPU time of a fixed piece of work, median over its cores; 0: not measured
  std::vector<Finding> alone;  ///< findings of diagnose() for this host
};

/// Serializes a report to be stored in the job's store; report_from() parses it and throws InputError.
std::string text_of(const HostReport& report);
HostReport report_from(const std::string& text);  ///< the same report

/// A finding about several hosts.
struct SharedFinding {
  Finding finding;
  std::vector<int> hosts;  ///< indices of the hosts at fault; empty for a pair when it is unknown which of the two is
                           ///< at fault
};

/// The hosts in the order of their ranks, and the measurements between them.
struct Allocation {
  std::vector<HostReport> hosts;
  LinkTable links;
};

/// Findings about the hosts as a whole, one or more per check, always in the same order: each host's own findings,
/// versions, processors, speed, clocks, connections, bandwidth, delay. Needs at least one host.
std::vector<SharedFinding> diagnose(const Allocation& allocation);
/// The worst health among them.
Health worst(std::span<const SharedFinding> findings);
/// Lines for a terminal.
std::string table_of(const Allocation& allocation, std::span<const SharedFinding> findings);
/// {"hosts": [...], "health", "findings": [...], "links": [...]}: rates in bytes per second, times in seconds.
Value value_of(const Allocation& allocation, std::span<const SharedFinding> findings);

/// A host that a job should avoid, and the reason.
struct BadHost {
  std::string host;  ///< its name
  std::string why;   ///< one line
};

/// Hosts that failed a check, and hosts that slow the others down (slow cores, slow or high-latency connections).
std::vector<BadHost> bad_hosts(const Allocation& allocation, std::span<const SharedFinding> findings);

/// Updates the text of a file of bad hosts (fleet/hostfile.h: read_bad_hosts) after another check: removes hosts that
/// are good again, adds bad ones with `when` and the reason, and keeps unchecked ones.
std::string updated_bad_hosts(std::string_view text, const Allocation& allocation, std::span<const BadHost> bad,
                              const std::string& when);

}  // namespace tessera::launch
