#include <tessera/train/core/guarded_update.h>

#include <cmath>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/config/core/run_config.h>

namespace tessera::train {

GuardedUpdate::GuardedUpdate(StepCore& core, comm::Group all, const RunConfig& config, UpdateHooks hooks)
    : core_(core), all_(std::move(all)), config_(config), hooks_(std::move(hooks)) {}

GuardedUpdate::Outcome GuardedUpdate::finish_step(std::int64_t step) {
  settle(/*has_gradients=*/false);
  const double learning_rate = core_.update().learning_rates().front();
  if (!hooks_.outcome_at_once && core_.steps_late()) {
    if (hooks_.before_update) hooks_.before_update();
    pending_ = {step, core_.step_late(config_.optimization.max_grad_norm)};
    core_.step_schedule();
    return {.learning_rate = learning_rate, .taken = true};
  }
  Outcome end{.learning_rate = learning_rate, .grad_norm = core_.gradient_norm()};
  grad_norm_ = end.grad_norm;
  const bool good = core_.loss_scale() != nullptr || admits(step, end.grad_norm, /*has_gradients=*/true);
  if (good) core_.clip_by(end.grad_norm, config_.optimization.max_grad_norm);
  if (hooks_.before_update) hooks_.before_update();
  if (!good) core_.end_step();
  end.taken = good && core_.step();
  if (end.taken || !good) core_.step_schedule();  // the schedule counts skipped steps, except those skipped by --fp16
  skipped_ += end.taken ? 0 : 1;
  return end;
}

void GuardedUpdate::settle(bool has_gradients) {
  if (!pending_) return;
  const Pending last = *std::exchange(pending_, std::nullopt);
  grad_norm_ = last.norm.value();
  if (admits(last.step, grad_norm_, has_gradients)) return;
  core_.forget_step();
  ++skipped_;
}

std::int64_t GuardedUpdate::take_newly_skipped() { return skipped_ - std::exchange(told_, skipped_); }

/// " (...)"; "" if unknown. Collective.
std::string GuardedUpdate::place_of_first_not_finite() {
  std::string where;
  try {
    core_.sharded().clip_grad_norm(0);
  } catch (const Error& error) {
    if (comm::recorder().any_failed()) throw;  // a rank was lost
    where = error.what();                      // names the rank and the parameter
  }
  if (const std::string source = hooks_.find_source ? hooks_.find_source() : ""; !source.empty())
    where = concat(source, where.empty() ? "" : "; ", where);
  return where.empty() ? "" : concat(" (", where, ")");
}

bool GuardedUpdate::admits(std::int64_t step, double norm, bool has_gradients) {
  if (std::isfinite(norm)) {
    in_a_row_ = 0;
    return true;
  }
  const std::string where = has_gradients ? place_of_first_not_finite()
                                          : " (the device reports it one step later, when these gradients are gone: "
                                            "use --logging_steps 1 to see where)";
  const OutputConfig& output = config_.output;
  const bool skips = output.nan_policy == NanPolicy::skip;
  if (skips && ++in_a_row_ <= output.nan_skip_limit) {
    if (all_.rank() == 0)
      log::warning("step ", step, " is skipped (--nan_policy skip; ", in_a_row_, " in a row, at most ",
                   output.nan_skip_limit, "): the gradient norm is ", format_real(norm),
                   "; weights and optimizer are unchanged", where);
    return false;
  }
  if (hooks_.before_failing) hooks_.before_failing();
  if (all_.rank() != 0) throw comm::FailedElsewhere(ExitCode::failed);
  throw Error(concat("step ", step, ": the gradient norm is ", format_real(norm),
                     skips ? concat(" after ", output.nan_skip_limit, " consecutive skipped steps") : "",
                     ": the training diverged. Lower --learning_rate (now ",
                     format_real(config_.optimization.learning_rate),
                     "), add --warmup_steps, or clip with --max_grad_norm; the last checkpoint is unharmed", where));
}

}  // namespace tessera::train
