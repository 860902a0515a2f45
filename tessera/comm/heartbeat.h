#pragma once
/// \file
/// The state that this rank publishes: its slot on the board (launch/agent/board.h). Torch-free.

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

/// Progress of one training step, for observers.
struct StepSign {
  std::int64_t step = 0, total_steps = 0;
  std::int64_t step_ns = 0;  ///< duration of the step
  double tokens_per_second = 0;
  double loss = 0;
};

/// This process's slot on the board. Thread-safe, except join().
class Heartbeat {
 public:
  Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Takes and clears this rank's slot on the agent's board (environment.board_fd), or on a one-slot board made here.
  /// Throws InputError if the descriptor is not a board of this build or has no slot for this rank. The board stays
  /// mapped until the process ends.
  void join(const launch::RankEnvironment& environment);

  /// This rank's slot; private memory of this process before join().
  launch::RankSlot& slot() const { return *slot_; }
  /// The board of this host; nullptr before join().
  const launch::Board* board() const { return board_ ? &board_ : nullptr; }

  void set_state(launch::RankState state);
  launch::RankState state() const { return slot_->state.load(std::memory_order_relaxed); }
  /// For display: "forward", "save checkpoint-200". Truncated to 31 bytes.
  void set_phase(std::string_view phase);
  /// This rank's mesh coordinates: "dp_shard 1, tp 0" (layout::describe_rank). For display in errors and on the board.
  /// Truncated to 63 bytes.
  void set_place(std::string_view place);
  /// Reports progress: a finished micro-batch, evaluation batch or file. (Collectives are counted automatically.)
  void advance();
  void set_step(const StepSign& sign);
  /// Marks this rank as failed, with the reason and the exit code it will end with. Only the first call has an effect:
  /// later failures are consequences.
  void fail(std::string_view why, ExitCode code = ExitCode::failed);

  /// Records why no wait of this process can succeed (a mismatch). Only the first call has an effect.
  void set_verdict(const std::string& why);
  std::optional<std::string> verdict() const;
  /// The reason to stop, if any: the verdict, the agent's request, or a newer generation; see comm::stop_requested().
  std::optional<std::string> stop_reason() const;

 private:
  launch::RankSlot* slot_;
  launch::Board board_;
  std::uint32_t generation_ = 0;
  std::atomic<bool> has_verdict_{false};
  mutable std::mutex mutex_;
  std::string verdict_;
  std::int64_t step_times_[100] = {};  // ring of recent durations, for the 99th percentile
  std::uint64_t steps_seen_ = 0;
};

/// This process's heartbeat; usable before init().
Heartbeat& heartbeat();

/// Sets this rank's state (evaluating, saving) while the object lives.
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
