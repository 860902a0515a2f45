#pragma once
/// \file
/// A LivenessWatch over four ranks with a test board, clock and /proc. Every rank's heartbeat advances at every look
/// unless a test stops it.

#include <tessera/launch/watch/liveness.h>

#include <gtest/gtest.h>

#include <tessera/base/text.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace tessera::launch {

constexpr std::int64_t second = 1'000'000'000;

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class JobUnderWatch {
 public:
  explicit JobUnderWatch(const LivenessLimits& limits = {})
      : board(Board::create(4, 0, 4, "test")),
        watch(
            limits, [this](pid_t pid) { return read(pid); },
            [this](pid_t, const std::vector<pid_t>&) { return waits_for; }) {
    for (int i = 0; i < 4; ++i) {
      RankSlot& slot = board.slot(i);
      slot.generation = 3;
      slot.heartbeat_ns = slot.progress_ns = now;
      slot.state = RankState::running;
      slot.p99_step_ns = second / 10;
      watched.push_back({i, i, 100 + i, false});
      processes[100 + i] = {'S', false, 0, 0};
    }
  }

  /// Advances the clock in steps of 0.1 s; returns the findings.
  std::vector<LivenessFinding> pass(double seconds, const std::vector<int>& silent = {}, bool progress = true) {
    std::vector<LivenessFinding> all;
    for (const auto end = now + static_cast<std::int64_t>(seconds * 1e9); now < end;) {
      now += second / 10;
      for (int i = 0; i < 4; ++i) {
        if (std::find(silent.begin(), silent.end(), i) != silent.end()) continue;
        board.slot(i).heartbeat_ns = now;
        if (progress) board.slot(i).progress_ns = now;
      }
      for (ProcStatus* busy : busy_) busy->cpu_ticks += 10;
      for (ProcStatus* starved : starved_) starved->cpu_wait_ns += second / 10;
      for (LivenessFinding& finding : watch.look(board, 3, watched, now)) all.push_back(std::move(finding));
    }
    return all;
  }

  void compute(int rank) { busy_.push_back(&processes[100 + rank]); }
  void wait_for_cpu(int rank) { starved_.push_back(&processes[100 + rank]); }
  ProcStatus& process(int rank) { return processes[100 + rank]; }

  /// The rank begins, and optionally completes, an all-reduce of group "world".
  void begin_collective(int rank, std::uint64_t sequence, bool ends, int group_size = 4) {
    RankSlot& slot = board.slot(rank);
    const std::uint64_t id = slot.next_entry.load();
    Entry& entry = slot.ring[id % RankSlot::ring_size];
    entry = Entry{};
    entry.id = id;
    entry.sequence = sequence;
    entry.fingerprint = 1;
    entry.op = Op::all_reduce;
    entry.group_size = group_size;
    entry.start_ns = now;
    entry.status = ends ? Status::done : Status::started;
    write_text(entry.group, "world");
    slot.next_entry = id + 1;
  }
  /// The ranks block in the last collective they began; a rank that has not begun any begins one first.
  void wait_in_collective(const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      RankSlot& slot = board.slot(rank);
      if (slot.next_entry.load() == 0) begin_collective(rank, 1, false);
      slot.blocked_in = slot.next_entry.load();
      slot.blocked_since_ns = now;
    }
  }

  std::int64_t now = 1000 * second;
  Board board;
  std::vector<WatchedRank> watched;
  std::map<pid_t, ProcStatus> processes;
  std::string waits_for;  ///< what /proc reports for sleeping ranks
  LivenessWatch watch;

 private:
  std::optional<ProcStatus> read(pid_t pid) { return processes.at(pid); }
  std::vector<ProcStatus*> busy_, starved_;
};

}  // namespace tessera::launch
