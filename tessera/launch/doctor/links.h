#pragma once
/// \file
/// Measures the connections between the hosts of an allocation, pair by pair, all pairs of a round at once: round-trip
/// time, bandwidth in both directions, and clock difference.

#include <tessera/launch/store/store_client.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// Measurements between two hosts; `from` called `to`.
struct Link {
  int from = 0, to = 0;        ///< indices of the hosts
  std::string failure;         ///< reason why they cannot communicate; empty: they can, and the other fields are valid
  double round_trip = 0;       ///< seconds: the minimum of 32
  double there = 0, back = 0;  ///< bytes per second over one TCP connection, from -> to and to -> from
  double clock_ahead = 0;      ///< seconds by which the clock of `to` is ahead of the clock of `from`
  double clock_within = 0;     ///< half the round trip: the maximum error of clock_ahead
};

/// All measurements.
struct LinkTable {
  int rounds = 0;           ///< rounds measured; each round pairs every host with another
  int rounds_for_all = 0;   ///< rounds after which every pair would have been measured
  std::vector<Link> links;  ///< ordered by from, then to
};

/// Number of rounds that pair each of `hosts` with every other once: hosts - 1, or hosts if odd.
int rounds_of_pairs(int hosts);
/// The partner of `host` in a round (the circle method of round-robin tournaments); nullopt if it pauses.
std::optional<int> partner(int round, int host, int hosts);

/// One host's part in the measurement.
struct LinkOptions {
  int host = 0, hosts = 1;  ///< our index among the hosts
  std::string address;      ///< address at which the others reach this host
  std::string key_prefix;   ///< prefix of our keys in the store
  double seconds = 0.1;     ///< how long to send in each direction of a pair (at least 1 MiB is sent, at most 256 MiB)
  int most_rounds = 63;     ///< maximum number of rounds; for a large allocation they are a uniform selection of all
                            ///< rounds
  std::chrono::milliseconds patience{30000};  ///< how long to wait for a partner that does not connect or stops
                                              ///< responding
  std::function<std::int64_t()> now;          ///< nanoseconds since 1970; empty: this host's clock (tests set another)
};

/// Collective over all hosts: measures, and returns the same table on each. `store` is the job's; through it each host
/// publishes its listening address and a random token, without which nobody is answered, because the measuring port is
/// open to strangers during the measurement. A pair that cannot communicate becomes a Link with a failure. Throws Error
/// when a host does not report its measurements (rounds x 2 x patience after this host's are done), StoreLost.
LinkTable measure_links(StoreClient& store, const LinkOptions& options);

/// Our address as seen from `host`: the address of the interface through which packets to it leave. Throws Error when
/// the name has no address or the host cannot be routed to.
std::string address_towards(const std::string& host);

/// How far each host's clock is ahead of host 0's, along the most precise links; nullopt for a host that no link
/// reaches.
struct ClockAhead {
  double seconds = 0;  ///< ahead of host 0
  double within = 0;   ///< maximum error
};
std::vector<std::optional<ClockAhead>> clocks_ahead(const LinkTable& table, int hosts);

}  // namespace tessera::launch
