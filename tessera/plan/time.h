#pragma once
/// \file
/// Predicts the seconds of one optimizer step by cause, and numbers derived from them: tokens/s, the share of the peak
/// used by the model's own arithmetic (MFU), and the share of wall time that makes progress (goodput).
///
/// Sources: products and passes of a block as in tessera/models; tensor parallelism: four all-reduces per block
/// (Shoeybi et al. 2019), six with recomputation; pipelines: the schedule's action lists, timed
/// (layout/schedule/timing.h); data parallelism: Rajbhandari et al. 2020, section 7 (volumes), overlapped with
/// backward, which it slows; properties of engines: engine.h; slow nodes: Jiang et al. 2024 (MegaScale, section 5.1:
/// some hosts take a tenth longer, and all wait for them); goodput: Daly 2006, first order.

#include <tessera/layout/schedule/timing.h>
#include <tessera/plan/costs.h>
#include <tessera/plan/memory.h>

#include <array>
#include <string_view>

namespace tessera::plan {

enum class TimeKind : unsigned char {
  products,   ///< matrix products, recomputation included
  attention,  ///< scores and weighted values
  passes,     ///< norms, activations, residuals, losses: memory-bound
  tensor,     ///< tensor-parallel communication
  context,    ///< context-parallel communication that attention does not hide
  experts,    ///< exchange of tokens with experts
  bubble,     ///< idle pipeline ranks, uneven stages included
  data,       ///< exposed communication of data parallelism: parameters and gradients
  optimizer,  ///< gradient norm, update
  host,       ///< the device waits for the host
  jitter      ///< waiting for the slowest of many ranks
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
  double mlp_share = 0;        ///< the share of the products' time in the MLP or experts
};
/// Returns the part of `block` for a stage with `attentions` attentions and `mlps` MLPs. Passes are divided in the same
/// ratio as products.
StepTime halves_time(const StepTime& block, double mlp_share, double attentions, double mlps);
BlockTime block_time(const Model& model, const Plan& run, const Cluster& cluster, bool sparse, double seen);

/// Options that determine the accuracy of a prediction.
struct TimeOptions {
  bool simulate = true;  ///< time the pipeline's action lists; false: the schedule's formula (search)
  /// relative standard deviation of a rank's step; the slowest of n ranks is late by sqrt(2 ln n) times this
  double deviation = 0.004;
};

StepTime step_time(const Model& model, const Plan& run, const Elements& elements, const Cluster& cluster,
                   const TimeOptions& options = {});

/// The pipeline's action lists with their times, for the smallest representative number of micro-batches; pp > 1.
struct PipelineTimes {
  layout::schedule::Schedule schedule;
  layout::schedule::Timing timing;
};
PipelineTimes pipeline_times(const Model& model, const Plan& run, const Elements& elements, const Cluster& cluster,
                             const TimeOptions& options = {});

/// Number of tokens visible to a query, averaged over the layers, as computed (half for causal attention).
double mean_seen_tokens(const Model& model, const Plan& run);
/// Seconds of the embedding, and of the head with the loss, for one micro-batch, forward and backward.
double embedding_seconds(const Model& model, const Plan& run, const Cluster& cluster);
double head_seconds(const Model& model, const Plan& run, const Elements& elements, const Cluster& cluster);

/// Data-parallel communication that a step waits for. `all`: the rank's elements, `root`: those of its largest unit;
/// `step_compute`, `last_backward`: seconds that may hide it.
double exposed_data_seconds(const Plan& run, const Elements::Piece& all, double root, const Cluster& cluster,
                            double step_compute, double last_backward);
/// Gradient norm and update.
double optimizer_seconds(const Plan& run, const Elements::Piece& all, const Cluster& cluster);

/// Model FLOP per second and device, divided by the peak. `half`: causal attention counts as computed.
double model_flops_utilization(const Model& model, const Plan& run, const Cluster& cluster, double step_seconds,
                               bool half = false);

/// Accounts for checkpoints and failures: the best interval between checkpoints that take `write_seconds` each, and the
/// resulting share of wall time spent training (Daly 2006: interval sqrt(2 x write x mean time between failures)).
struct Goodput {
  double share = 1, interval_seconds = 0, failures_per_day = 0;
};
Goodput goodput(const Cluster& cluster, double write_seconds, double restart_seconds = 180);

}  // namespace tessera::plan
