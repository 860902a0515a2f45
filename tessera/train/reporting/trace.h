#pragma once
/// \file
/// OUT/trace.json (--profile): one timeline of all ranks in Chrome's trace format, for ui.perfetto.dev and
/// chrome://tracing. One process row per rank: its phases (data, forward, backward, ...), its waits for other ranks,
/// and one track per group with its collectives.

#include <tessera/base/clock.h>
#include <tessera/comm/recorder.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::comm {
class Group;
}

namespace tessera::train {

/// The events of one rank. Memory is bounded: the newest events are kept, the others are only counted.
class Trace {
 public:
  static constexpr std::size_t capacity = 100'000;  ///< maximum number of phases, and of collectives

  /// Ends the current phase and starts this one; "" starts none. Times are on the recorder's clock.
  void phase(std::string_view name) { phase(name, monotonic_ns()); }
  void phase(std::string_view name, std::int64_t now_ns);
  /// Adds the collectives that ended since the last call, from this process's record. Call it at least every few
  /// thousand collectives.
  void collect();
  void add(const comm::Entry& entry);

  std::int64_t dropped() const { return dropped_; }

  /// The events of this rank as JSON objects separated by ",\n". `rank`: its row; times are in microseconds after
  /// `zero_ns` of the local clock; collectives that started before it are omitted.
  std::string events(int rank, std::int64_t zero_ns) const;

 private:
  struct Span {
    std::string_view name;  // points to a literal
    std::int64_t begin_ns, end_ns;
  };
  std::deque<Span> phases_;
  std::deque<comm::Entry> collectives_;
  std::string_view current_;
  std::int64_t since_ns_ = 0;
  std::uint64_t next_entry_ = 0;
  std::int64_t dropped_ = 0;
};

/// The reading of this rank's clock, in nanoseconds, at a moment that is the same for all ranks to within the duration
/// of a barrier; ranks of one host share a clock and get the same number. Collective.
std::int64_t common_zero(const comm::Group& group, bool one_host);

/// Merges the ranks' events: the whole file on rank 0, "" on the others. Collective.
std::string merge_traces(const Trace& mine, std::int64_t zero_ns, const comm::Group& group);

}  // namespace tessera::train
