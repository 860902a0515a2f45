#pragma once
/// \file
/// Exchange between the doctors of an allocation's hosts, through the store of the job that `tessera launch` started.

#include <tessera/launch/cli/environment.h>
#include <tessera/launch/doctor/allocation.h>
#include <tessera/launch/doctor/readings.h>

#include <chrono>
#include <optional>
#include <string>

namespace tessera::launch {

/// Whether several ranks, on one or more hosts, were started by our launcher: only then can doctors meet.
bool can_meet(const RankEnvironment& environment);

/// This host's report to the others.
HostReport report_of(const Readings& readings);

/// Collective over all ranks: ranks that are not the first of their host pass `nullptr` and return nullopt at once. The
/// others wait for each other, exchange reports and measure their links; all return the same result. `patience`: how
/// long to wait for absent hosts. Throws Error naming the store or the missing hosts.
std::optional<Allocation> meet(const RankEnvironment& environment, const HostReport* own,
                               std::chrono::milliseconds patience = std::chrono::seconds(60));

}  // namespace tessera::launch
