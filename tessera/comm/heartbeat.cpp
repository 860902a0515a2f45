#include <tessera/comm/heartbeat.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace tessera::comm {

using launch::RankState;

Heartbeat::Heartbeat()
    : slot_(new launch::RankSlot{}) {}  // never freed: threads may write to it until the process ends

void Heartbeat::join(const launch::RankEnvironment& environment) {
  const bool given = environment.board_fd >= 0;
  launch::Board board;
  if (given) {
    board = launch::Board::open(environment.board_fd);
    fcntl(environment.board_fd, F_SETFD, FD_CLOEXEC);  // child processes must not inherit it
  } else {
    board = launch::Board::create(1, environment.rank, environment.world_size, environment.job);
  }
  const int index = environment.rank - board.header().first_rank;
  if (index < 0 || index >= board.slots()) {
    throw InputError(concat("the board of this host (TESSERA_BOARD_FD) is for ranks ", board.header().first_rank, "..",
                            board.header().first_rank + board.slots() - 1, ", this is rank ", environment.rank, "."));
  }
  launch::RankSlot& slot = board.slot(index);
  generation_ = static_cast<std::uint32_t>(environment.generation);
  if (!given) board.header().generation = generation_;
  launch::clear(slot);
  slot.rank = environment.rank;
  slot.pid = getpid();
  slot.generation = generation_;
  slot.heartbeat_ns = slot.progress_ns = monotonic_ns();
  slot.state = RankState::joining;
  // An earlier board of this process stays mapped: threads may still write to it.
  if (board_) new launch::Board(std::move(board_));
  board_ = std::move(board);
  slot_ = &slot;
  const std::lock_guard lock(mutex_);
  has_verdict_ = false;
  verdict_.clear();
  steps_seen_ = 0;
}

void Heartbeat::set_state(RankState state) {
  // A failed rank keeps this state while it cleans up.
  if (this->state() != RankState::failed) slot_->state.store(state, std::memory_order_release);
}

void Heartbeat::set_phase(std::string_view phase) { launch::write_text(slot_->phase, phase); }

void Heartbeat::set_place(std::string_view place) { launch::write_text(slot_->place, place); }

void Heartbeat::advance() {
  slot_->progress.fetch_add(1, std::memory_order_relaxed);
  slot_->progress_ns.store(monotonic_ns(), std::memory_order_relaxed);
}

void Heartbeat::set_step(const StepSign& sign) {
  std::vector<std::int64_t> times;
  {
    const std::lock_guard lock(mutex_);
    step_times_[steps_seen_++ % std::size(step_times_)] = sign.step_ns;
    times.assign(step_times_, step_times_ + std::min<std::uint64_t>(steps_seen_, std::size(step_times_)));
  }
  const auto p99 = times.begin() + static_cast<std::ptrdiff_t>((times.size() * 99 + 99) / 100 - 1);
  std::nth_element(times.begin(), p99, times.end());
  slot_->p99_step_ns = *p99;
  slot_->step_ns = sign.step_ns;
  slot_->total_steps = sign.total_steps;
  slot_->tokens_per_second = sign.tokens_per_second;
  slot_->loss = sign.loss;
  slot_->step = sign.step;
  if (slot_->first_step_ns == 0) slot_->first_step_ns = monotonic_ns();
  advance();
}

void Heartbeat::fail(std::string_view why, ExitCode code) {
  const std::lock_guard lock(mutex_);
  if (slot_->verdict_ns == 0) {
    launch::write_text(slot_->error, why);
    slot_->exit_code = static_cast<int>(code);
    slot_->verdict_ns = monotonic_ns();
  }
  slot_->state.store(RankState::failed, std::memory_order_release);
}

void Heartbeat::set_verdict(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (has_verdict_) return;
  verdict_ = why;
  has_verdict_.store(true, std::memory_order_release);
}

std::optional<std::string> Heartbeat::verdict() const {
  if (!has_verdict_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return verdict_;
}

std::optional<std::string> Heartbeat::stop_reason() const {
  if (auto why = verdict()) return why;
  if (!board_) return std::nullopt;
  const launch::BoardHeader& header = board_.header();
  const std::uint32_t now = header.generation.load(std::memory_order_relaxed);
  if (now != generation_) {
    return concat("this process belongs to generation ", generation_, " of the job, which was restarted as generation ",
                  now, "; it must end");
  }
  if (header.stop.load(std::memory_order_acquire) == 0) return std::nullopt;
  const std::string reason = launch::read_text(header.stop_reason);
  return concat("the launcher ends the job", reason.empty() ? "" : ": ", reason);
}

}  // namespace tessera::comm
