// Times of operations done once per step: data-parallel communication, the update, checkpoints.

#include <tessera/plan/time.h>

#include <algorithm>
#include <cmath>

namespace tessera::plan {

using layout::Axis;

double optimizer_seconds(const Plan& run, const Elements::Piece& all, const Cluster& cluster) {
  const bool divides = row_of(run.strategy).shard_optimizer && run.shard_ranks() > 1;
  const double own = divides ? all.shared / run.shard_ranks() + all.experts / run.expert_shard_ranks() : all.trained();
  const Numerics& n = run.numerics;
  // The norm reads gradients; the update reads them again, and reads and writes parameters and states.
  const double bytes = own * (2 * n.gradient + 2 * n.shard + 2 * n.states);
  if (const auto& measured = cluster.device.measured) return (*measured)[Work::update].at(bytes);
  return pass_seconds(cluster.device, bytes);
}

/// The slowdown of computing, as a share of the overlapped communication time.
constexpr double overlap_cost = 0.25;

double exposed_data_seconds(const Plan& run, const Elements::Piece& all, double root, const Cluster& cluster,
                            double step_compute, double last_backward) {
  const layout::Mesh& mesh = run.mesh;
  const int shard_axis = mesh.size(Axis::dp_shard) * run.cp(), copies = mesh.size(Axis::dp_replicate);
  const int replicas = shard_axis * copies;
  if (replicas <= 1) return 0;
  const StrategyRow& row = row_of(run.strategy);
  const Numerics& n = run.numerics;
  const double m = real(run.micro_batches);
  const int stride = run.tp();
  const auto exchange = [&](double elements, int shard, int copy, int apart) {
    const Placed inside = place(shard, apart, cluster.per_node), outside = place(copy, apart * shard, cluster.per_node),
                 both = place(shard * copy, apart, cluster.per_node);
    const double weights = elements * n.whole, gradients = elements * n.wire;
    const auto t = [&](const Placed& group, Collective what, double bytes) {
      return collective_seconds(cluster, group, what, bytes, /*buffers=*/true);
    };
    if (!row.shard_optimizer || shard == 1) return t(both, Collective::all_reduce, gradients);
    const double sums = copy > 1 ? t(outside, Collective::all_reduce, gradients / shard) : 0;
    if (!row.shard_parameters) {
      const double times = row.shard_gradients ? m : 1;
      return times * (t(inside, Collective::reduce_scatter, gradients) + sums) +
             t(inside, Collective::all_gather, weights);
    }
    const double gathers = row.reshard_after_forward ? 2 : 1;
    return m * (gathers * t(inside, Collective::all_gather, weights) +
                t(inside, Collective::reduce_scatter, gradients) + sums);
  };
  const int ep = mesh.ep;
  const double shared = exchange(all.shared, shard_axis, copies, stride);
  const int expert_shard = std::max(1, shard_axis / ep), expert_copies = std::max(1, replicas / ep / expert_shard);
  const double experts = all.experts > 0 ? exchange(all.experts, expert_shard, expert_copies, stride * ep) : 0;
  // Frozen parameters are gathered as well.
  const double frozen = row.shard_parameters && shard_axis > 1 && all.frozen > 0
                            ? m * (row.reshard_after_forward ? 2 : 1) *
                                  collective_seconds(cluster, place(shard_axis, stride, cluster.per_node),
                                                     Collective::all_gather, all.frozen * n.whole, /*buffers=*/true)
                            : 0;
  const double total = shared + experts + frozen;
  const bool all_step = row.shard_parameters || row.shard_gradients;
  const double hides = run.engine.data_hidden * (all_step ? step_compute : last_backward);
  // The first unit's gather and the last one's reduction cannot be hidden.
  const double ends = total * std::min(1.0, 2 * root / std::max(1.0, all.all())) / std::max(1.0, m);
  const double exposed = std::min(total, std::max(0.0, total - hides) + ends);
  if (cluster.on_cpu) return exposed;
  // Hidden communication takes compute units and bandwidth from concurrent products: they are 1.1 to 1.3 times slower
  // (Miao et al. 2022, "Galvatron", section 5.1).
  return exposed + overlap_cost * (total - exposed);
}

Goodput goodput(const Cluster& cluster, double write_seconds, double restart_seconds) {
  Goodput g;
  const double between = cluster.hours_between_failures * 3600 / cluster.devices;
  g.failures_per_day = 86400 / between;
  g.interval_seconds = std::sqrt(2 * write_seconds * between);
  const double lost = write_seconds / g.interval_seconds + (g.interval_seconds / 2 + restart_seconds) / between;
  g.share = std::max(0.0, 1 - lost);
  return g;
}

}  // namespace tessera::plan
