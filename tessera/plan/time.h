#pragma once
/// \file
/// Seconds of one optimizer step, by what they go into, and what follows: tokens/s, the share of the peak that the
/// model's own arithmetic has (MFU), the share of wall time that gets the run on (goodput).
///
/// Sources: products and passes of a block as tessera/models does them; tensor parallelism: four all-reduces a block
/// (Shoeybi et al. 2019), with recomputation six; pipelines: the schedule's own action lists, timed
/// (layout/schedule/timing.h); data parallelism: Rajbhandari et al. 2020, section 7 (volumes), overlapped with
/// backward, which it slows; what engines do: engine.h; slow nodes: Jiang et al. 2024 (MegaScale, section 5.1: some
/// hosts take a tenth longer, and all wait for them); goodput: Daly 2006, first order.

#include <tessera/layout/schedule/timing.h>
#include <tessera/plan/costs.h>
#include <tessera/plan/memory.h>

#include <array>
#include <string_view>

namespace tessera::plan {

enum class TimeKind : unsigned char {
  products,   ///< matrix products, of the model and of recomputation
  attention,  ///< scores and what they mix
  passes,     ///< norms, activations, residuals, losses: bound by memory
  tensor,     ///< exchanges of tensor parallelism
  context,    ///< those of context parallelism, as far as attention does not hide them
  experts,    ///< tokens on their way to experts and back
  bubble,     ///< ranks of a pipeline that wait, uneven stages included
  data,       ///< parameters and gradients of data parallelism, as far as nothing hides them
  optimizer,  ///< norm of the gradients, update
  host,       ///< the device waits for the program
  jitter      ///< the slowest of many
};
inline constexpr std::size_t time_kinds = 11;
std::string_view name_of(TimeKind kind);

struct StepTime {
  std::array<double, time_kinds> seconds{};
  double& operator[](TimeKind kind) { return seconds[static_cast<std::size_t>(kind)]; }
  double operator[](TimeKind kind) const { return seconds[static_cast<std::size_t>(kind)]; }
  double total() const;
  TimeKind largest() const;
};

/// Seconds of a block for one micro-batch.
struct BlockTime {
  StepTime forward, backward;  ///< backward without recomputation
  double mlp_share = 0;        ///< the part of the products' time that those of the MLP or of the experts take
};
/// What of these a stage takes that has so many blocks' attention and so many MLPs. Passes are divided as products are.
StepTime halves_time(const StepTime& block, double mlp_share, double attentions, double mlps);
BlockTime block_time(const Model& model, const Plan& run, const Cluster& cluster, bool sparse, double seen);

/// What an experienced eye would leave out of these is what a person may set.
struct TimeOptions {
  bool simulate = true;      ///< time the pipeline's action lists; false: the schedule's formula (search)
  double deviation = 0.004;  ///< relative, of a rank's step: the slowest of n is sqrt(2 ln n) of them late
};

StepTime step_time(const Model& model, const Plan& run, const Elements& elements, const Cluster& cluster,
                   const TimeOptions& options = {});

/// The pipeline's action lists with their times, of as few micro-batches as show what it does; pp > 1.
struct PipelineTimes {
  layout::schedule::Schedule schedule;
  layout::schedule::Timing timing;
};
PipelineTimes pipeline_times(const Model& model, const Plan& run, const Elements& elements, const Cluster& cluster,
                             const TimeOptions& options = {});

/// Tokens that a query sees on average over the layers, as computed (of a causal half, half).
double mean_seen_tokens(const Model& model, const Plan& run);
/// Seconds of the embedding and of head with loss for one micro-batch, forward and backward.
double embedding_seconds(const Model& model, const Plan& run, const Cluster& cluster);
double head_seconds(const Model& model, const Plan& run, const Elements& elements, const Cluster& cluster);

/// What of data parallelism's exchanges a step waits for. `all`: the rank's elements, `root`: of its largest unit;
/// `step_compute`, `last_backward`: seconds that may hide them.
double exposed_data_seconds(const Plan& run, const Elements::Piece& all, double root, const Cluster& cluster,
                            double step_compute, double last_backward);
/// The norm of the gradients and the update.
double optimizer_seconds(const Plan& run, const Elements::Piece& all, const Cluster& cluster);

/// Model FLOP per second and device over the peak. `half`: causal attention counts as computed.
double model_flops_utilization(const Model& model, const Plan& run, const Cluster& cluster, double step_seconds,
                               bool half = false);

/// Checkpoints and failures: the best interval between checkpoints of so many seconds, and the share of wall time
/// that is training then (Daly 2006: interval sqrt(2 x write x mean time between failures)).
struct Goodput {
  double share = 1, interval_seconds = 0, failures_per_day = 0;
};
Goodput goodput(const Cluster& cluster, double write_seconds, double restart_seconds = 180);

}  // namespace tessera::plan
