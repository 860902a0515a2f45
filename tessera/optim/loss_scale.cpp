#include <tessera/optim/loss_scale.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <cmath>

namespace tessera::optim {

LossScale::LossScale(const LossScaleOptions& options) : options_(options) {
  if (!(options.initial > 0) || !std::isfinite(options.initial) || !(options.growth_factor >= 1) ||
      !std::isfinite(options.growth_factor) || !(options.backoff_factor > 0 && options.backoff_factor < 1) ||
      options.growth_interval < 1 || !(options.minimum >= 0) || options.hysteresis < 1)
    throw InputError(
        concat("loss scale: initial = ", options.initial, ", growth_factor = ", options.growth_factor,
               ", backoff_factor = ", options.backoff_factor, ", growth_interval = ", options.growth_interval,
               ", minimum = ", options.minimum, ", hysteresis = ", options.hysteresis,
               "; needed: initial > 0, growth_factor >= 1, backoff_factor in (0, 1), growth_interval >= 1, "
               "minimum >= 0, hysteresis >= 1"));
  state_.scale = options.initial;
  state_.hysteresis = options.hysteresis;
}

bool LossScale::update(double gradient_norm) {
  if (std::isfinite(gradient_norm)) {
    if (options_.dynamic) count_good_step();
    return true;
  }
  ++state_.skipped_steps;
  if (options_.dynamic) lower(gradient_norm);
  return false;
}

void LossScale::count_good_step() {
  if (options_.consecutive_hysteresis) state_.hysteresis = options_.hysteresis;
  ++state_.good_steps;
  const std::int64_t counted = state_.good_steps - (options_.first_good_step_counts ? 0 : 1);
  if (counted == 0 || counted % options_.growth_interval != 0) return;
  const double grown = state_.scale * options_.growth_factor;
  if (grown <= 0x1p127) state_.scale = grown;  // it must also fit a float
  state_.hysteresis = options_.hysteresis;
  if (options_.first_good_step_counts) state_.good_steps = 0;
}

void LossScale::lower(double gradient_norm) {
  state_.good_steps = 0;
  if (state_.hysteresis > 1) {
    --state_.hysteresis;
    return;
  }
  const double smaller = state_.scale * options_.backoff_factor;
  if (state_.scale <= options_.minimum)
    throw Error(concat("loss scale: the gradient norm is ", gradient_norm, " at scale ", state_.scale, " after ",
                       state_.skipped_steps, " skipped steps, and ", smaller, " is below the minimum ",
                       options_.minimum,
                       "; the loss itself is not finite, or activations overflow fp16: try bf16, or a lower learning "
                       "rate"));
  state_.scale = std::max(smaller, options_.minimum);
}

void LossScale::set_state(const LossScaleState& state) {
  if (!(state.scale > 0) || !std::isfinite(state.scale) || state.good_steps < 0 || state.skipped_steps < 0 ||
      state.hysteresis < 0)
    throw InputError(concat("loss scale: a state of scale ", state.scale, ", ", state.good_steps, " good and ",
                            state.skipped_steps,
                            " skipped steps; the scale must be positive and finite, counts must not be negative"));
  state_ = state;
  if (state_.hysteresis == 0 || state_.hysteresis > options_.hysteresis) state_.hysteresis = options_.hysteresis;
}

}  // namespace tessera::optim
