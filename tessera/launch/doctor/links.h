#pragma once
/// \file
/// The connections between the hosts of an allocation, measured pair by pair, all pairs of a round at once: round-trip
/// time, bandwidth both ways, and how far apart the two clocks are.

#include <tessera/launch/store/store_client.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// What was measured between two hosts; `from` called `to`.
struct Link {
  int from = 0, to = 0;        ///< places of the hosts
  std::string failure;         ///< why they cannot talk; empty: they can, and the rest holds
  double round_trip = 0;       ///< seconds: the least of 32
  double there = 0, back = 0;  ///< bytes per second over one TCP connection, from -> to and to -> from
  double clock_ahead = 0;      ///< seconds by which the clock of `to` is ahead of that of `from`
  double clock_within = 0;     ///< half the round trip: the most by which clock_ahead can be wrong
};

/// All that was measured.
struct LinkTable {
  int rounds = 0;           ///< in each, every host was measured with one other
  int rounds_for_all = 0;   ///< rounds after which every pair would have been measured
  std::vector<Link> links;  ///< ordered by from, then to
};

/// Rounds in which each of `hosts` meets every other one once, in pairs: hosts - 1, or as many as hosts when odd.
int rounds_of_pairs(int hosts);
/// Whom `host` meets in a round (the circle method of round-robin tournaments); nullopt: it rests.
std::optional<int> partner(int round, int host, int hosts);

/// One host's part in measuring.
struct LinkOptions {
  int host = 0, hosts = 1;  ///< our place among the hosts
  std::string address;      ///< where the others reach this host
  std::string key_prefix;   ///< what our keys in the store begin with
  double seconds = 0.1;     ///< how long to send, each way of a pair (at least 1 MiB is sent, at most 256 MiB)
  int most_rounds = 63;     ///< a large allocation has so many, evenly chosen
  std::chrono::milliseconds patience{30000};  ///< with a partner that does not come or stops talking
  std::function<std::int64_t()> now;          ///< nanoseconds since 1970; empty: this host's clock (tests: another)
};

/// Collective over all hosts: measures, and returns the same table on each. `store` is the job's; it carries who
/// listens where and a random token for each host, without which nobody is answered: the measuring port is open to
/// strangers for as long as this takes. A pair that cannot talk is a Link with a failure. Throws Error when a host does
/// not tell what it measured (rounds x 2 x patience after we have), StoreLost.
LinkTable measure_links(StoreClient& store, const LinkOptions& options);

/// Our address as hosts on the way to `host` see it: that of the interface by which packets to it leave. Throws Error
/// when the name has no address or there is no way.
std::string address_towards(const std::string& host);

/// How far each host's clock is ahead of the first one's, along the links that know it best; nullopt where no link
/// leads.
struct ClockAhead {
  double seconds = 0;  ///< ahead of host 0
  double within = 0;   ///< the most by which that can be wrong
};
std::vector<std::optional<ClockAhead>> clocks_ahead(const LinkTable& table, int hosts);

}  // namespace tessera::launch
