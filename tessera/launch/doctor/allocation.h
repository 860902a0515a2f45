#pragma once
/// \file
/// What the machines of a whole allocation mean for one job: whether they are alike, whether their clocks agree, how
/// fast each pair of them is connected. Plain numbers in, findings out, so that tests can plant faults.

#include <tessera/base/value.h>
#include <tessera/launch/doctor/diagnosis.h>
#include <tessera/launch/doctor/links.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// What one host of an allocation tells the others of itself.
struct HostReport {
  std::string host;            ///< its name
  std::string version;         ///< tessera's, as it is installed there
  std::string processor;       ///< "AMD EPYC 9B14"
  int processors = 1;          ///< that its ranks may run on
  double core_seconds = 0;     ///< CPU time of a fixed piece of work, the median of its cores; 0: not measured
  std::vector<Finding> alone;  ///< what diagnose() says of it
};

/// The report as a host's text in the job's store, and back. The second throws InputError.
std::string text_of(const HostReport& report);
HostReport report_from(const std::string& text);  ///< the same report

/// A finding about hosts together.
struct SharedFinding {
  Finding finding;
  std::vector<int> hosts;  ///< those to blame, by their place; none of a pair, of which nobody knows which one it is
};

/// The hosts in the order of their ranks, and what was measured between them.
struct Allocation {
  std::vector<HostReport> hosts;
  LinkTable links;
};

/// Findings about the hosts together, one or more per check, always in the same order: each host's own, versions,
/// processors, speed, clocks, connections, bandwidth, delay. Needs at least one host.
std::vector<SharedFinding> diagnose(const Allocation& allocation);
/// The worst of them.
Health worst(std::span<const SharedFinding> findings);
/// Lines for a terminal.
std::string table_of(const Allocation& allocation, std::span<const SharedFinding> findings);
/// {"hosts": [...], "health", "findings": [...], "links": [...]}: rates in bytes per second, times in seconds.
Value value_of(const Allocation& allocation, std::span<const SharedFinding> findings);

/// A host that a job should do without, and why.
struct BadHost {
  std::string host;  ///< its name
  std::string why;   ///< one line
};

/// Those that failed a check, and those that hold the others up (slow cores, slow or slowly answering connections).
std::vector<BadHost> bad_hosts(const Allocation& allocation, std::span<const SharedFinding> findings);

/// The text of a file of bad hosts (fleet/hostfile.h: read_bad_hosts) after another check: hosts that are now good
/// leave it, bad ones come with `when` and why, those that took no part stay as they are.
std::string updated_bad_hosts(std::string_view text, const Allocation& allocation, std::span<const BadHost> bad,
                              const std::string& when);

}  // namespace tessera::launch
