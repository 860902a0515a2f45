#pragma once
/// \file
/// Times of the parts of a step in seconds: products, passes over memory, collectives. Pure functions of hardware
/// numbers and sizes.
///
/// Sources: roofline (Williams et al. 2009); tiles and waves (NVIDIA, "Matrix Multiplication Background User's Guide",
/// sections 3.1 to 3.3); alpha-beta costs of ring collectives (Thakur et al. 2005, "Optimization of Collective
/// Communication Operations in MPICH"); hierarchical links: first within nodes, then each device's part between nodes.

#include <tessera/layout/mesh.h>
#include <tessera/plan/hardware.h>

namespace tessera::plan {

/// y [m, n] = a [m, k] b [k, n], with `element` bytes per element. Tiles are computed whole, in waves of as many tiles
/// as the device runs at once. A tile is twice as high or as wide as device.tile, or square, which is slightly slower.
/// Seconds.
double product_seconds(const Device& device, double m, double n, double k, double element);

/// Both products of the backward: the gradients of a and b. Seconds.
double product_backward_seconds(const Device& device, double m, double n, double k, double element);

/// A pass that reads and writes `bytes` bytes in total. Seconds.
double pass_seconds(const Device& device, double bytes);

/// Attention's forward for `queries` tokens that each attend to `keys` tokens on average; `width`: all heads. Seconds.
double attention_seconds(const Device& device, double queries, double keys, double width, double element);
/// Attention's backward; unless measured, 2.5 x the forward: scores are recomputed (Dao et al. 2022).
double attention_backward_seconds(const Device& device, double queries, double keys, double width, double element);

/// Attention's forward with scores in memory, where each of `queries` tokens attends to all `keys`, with heads of
/// `head` columns: two products, whose memory traffic is hidden by their arithmetic, and 9 bytes per score: a softmax
/// reads and writes 2 each, and a dropout the same plus a mask of 1 (Korthikanti et al. 2022, section 4.1). Products
/// whose rows are not a multiple of 16 bytes run without tensor cores (NVIDIA, "Matrix Multiplication Background User's
/// Guide", section 2.2), at half of the fp32 rate. Seconds.
double scores_seconds(const Device& device, double queries, double keys, double width, double head, double element);

/// A group of communicating ranks and its distribution over nodes.
struct Placed {
  int ranks = 1;
  int local = 1;  ///< ranks within one node
};
/// `stride`: distance in ranks between neighbours of the group.
Placed place(int ranks, int stride, int per_node);
/// The stride of an axis: the product of all faster-varying axes.
int stride_of(const layout::Mesh& mesh, layout::Axis axis);

enum class Collective { all_reduce, all_gather, reduce_scatter, all_to_all };
/// Each rank contributes (all_gather: receives) `bytes` bytes in total. `buffers`: whether they belong to buffers of
/// parameters or gradients, which processes of a host share. Seconds; 0 for one rank.
double collective_seconds(const Cluster& cluster, const Placed& group, Collective what, double bytes,
                          bool buffers = false);
/// A message to a rank at distance `stride`.
double message_seconds(const Cluster& cluster, int stride, double bytes);

}  // namespace tessera::plan
