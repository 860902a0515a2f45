#pragma once
/// \file
/// What this rank shows of itself to others: its slot of the board (launch/agent/board.h). Torch-free.

#include <tessera/base/error.h>
#include <tessera/launch/agent/board.h>
#include <tessera/launch/cli/environment.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::comm {

/// One training step, for whoever watches.
struct StepSign {
  std::int64_t step = 0, total_steps = 0;
  std::int64_t step_ns = 0;  ///< how long it took
  double tokens_per_second = 0;
  double loss = 0;
};

/// This process's place on the board. Thread-safe, except join().
class Heartbeat {
 public:
  Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Takes the slot of this rank on the board that the agent gave (environment.board_fd), else on a board of one slot
  /// made here, and clears it. Throws InputError when the descriptor holds no board of this build or no slot for this
  /// rank. The board stays mapped until the process ends.
  void join(const launch::RankEnvironment& environment);

  /// This rank's slot; memory of this process before join().
  launch::RankSlot& slot() const { return *slot_; }
  /// The board of this host; nullptr before join().
  const launch::Board* board() const { return board_ ? &board_ : nullptr; }

  void set_state(launch::RankState state);
  launch::RankState state() const { return slot_->state.load(std::memory_order_relaxed); }
  /// For people: "forward", "save checkpoint-200". Cut to 31 bytes.
  void set_phase(std::string_view phase);
  /// Where this rank stands in the mesh: "dp_shard 1, tp 0" (layout::describe_rank). For people, in errors and on the
  /// board. Cut to 63 bytes.
  void set_place(std::string_view place);
  /// Something was finished: a micro-batch, a batch of an evaluation, a file. (Collectives count by themselves.)
  void advance();
  void set_step(const StepSign& sign);
  /// This rank fails: its state, why in words, and with which code it is going to end (the first call counts: what
  /// follows is a consequence).
  void fail(std::string_view why, ExitCode code = ExitCode::failed);

  /// Nothing that this process waits for can succeed, because ... (a mismatch). The first call counts.
  void set_verdict(const std::string& why);
  std::optional<std::string> verdict() const;
  /// The verdict, the agent's request to stop, or a newer generation; see comm::stop_requested().
  std::optional<std::string> stop_reason() const;

 private:
  launch::RankSlot* slot_;
  launch::Board board_;
  std::uint32_t generation_ = 0;
  std::atomic<bool> has_verdict_{false};
  mutable std::mutex mutex_;
  std::string verdict_;
  std::int64_t step_times_[100] = {};  // ring of the last durations, for the 99th percentile
  std::uint64_t steps_seen_ = 0;
};

/// This process's; usable before init().
Heartbeat& heartbeat();

/// While it lives, this rank is in that state (evaluating, saving).
class LifeState {
 public:
  explicit LifeState(launch::RankState state) : before_(heartbeat().state()) { heartbeat().set_state(state); }
  ~LifeState() { heartbeat().set_state(before_); }
  LifeState(const LifeState&) = delete;
  LifeState& operator=(const LifeState&) = delete;

 private:
  launch::RankState before_;
};

}  // namespace tessera::comm
