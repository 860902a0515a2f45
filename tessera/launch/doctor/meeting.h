#pragma once
/// \file
/// The doctors of an allocation's hosts meet in the store of the job that `tessera launch` started them as.

#include <tessera/launch/cli/environment.h>
#include <tessera/launch/doctor/allocation.h>
#include <tessera/launch/doctor/readings.h>

#include <chrono>
#include <optional>
#include <string>

namespace tessera::launch {

/// Whether ranks of several hosts, or several ranks, were started by our launcher: then doctors can meet.
bool can_meet(const RankEnvironment& environment);

/// What this host tells the others.
HostReport report_of(const Readings& readings);

/// Collective over all ranks: those that are not the first of their host pass `nullptr`, and get nothing back at once.
/// The others wait for one another, exchange reports, measure their links, and all get the same. `patience`: with hosts
/// that do not come. Throws Error naming the store, or who is missing.
std::optional<Allocation> meet(const RankEnvironment& environment, const HostReport* own,
                               std::chrono::milliseconds patience = std::chrono::seconds(60));

}  // namespace tessera::launch
