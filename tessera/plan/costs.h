#pragma once
/// \file
/// Seconds of the pieces that a step is made of: products, passes over memory, collectives. Pure functions of hardware
/// numbers and sizes.
///
/// Sources: roofline (Williams et al. 2009); tiles and waves (NVIDIA, "Matrix Multiplication Background User's Guide",
/// sections 3.1 to 3.3); alpha-beta costs of ring collectives (Thakur et al. 2005, "Optimization of Collective
/// Communication Operations in MPICH"); a hierarchy of links: inside nodes first, then each device its part across.

#include <tessera/layout/mesh.h>
#include <tessera/plan/hardware.h>

namespace tessera::plan {

/// y [m, n] = a [m, k] b [k, n] with elements of so many bytes. Tiles are whole, in waves of as many as the device does
/// at once: twice as high or wide as device.tile, or square ones, which are a little slower. Seconds.
double product_seconds(const Device& device, double m, double n, double k, double element);

/// Both products of its backward: gradients of a and of b. Seconds.
double product_backward_seconds(const Device& device, double m, double n, double k, double element);

/// A pass that reads and writes so many bytes. Seconds.
double pass_seconds(const Device& device, double bytes);

/// Attention's forward of `queries` tokens of `heads` heads that each see `keys` tokens on average. Seconds.
double attention_seconds(const Device& device, double queries, double keys, double width, double element);
/// Its backward; unless measured, 2.5 x the forward: scores are formed again (Dao et al. 2022).
double attention_backward_seconds(const Device& device, double queries, double keys, double width, double element);

/// Attention's forward with scores in memory, each of `queries` tokens with all `keys`, of heads of `head` columns: two
/// products, whose own reading and writing their arithmetic hides, and 9 bytes a score: a softmax reads and writes 2
/// each, a dropout as many and a mask of 1 (Korthikanti et al. 2022, section 4.1). Products whose rows are no multiple
/// of 16 bytes run without tensor cores (NVIDIA, "Matrix Multiplication Background User's Guide", section 2.2), at half
/// of what fp32 has. Seconds.
double scores_seconds(const Device& device, double queries, double keys, double width, double head, double element);

/// Ranks that exchange something, and how they lie on nodes.
struct Placed {
  int ranks = 1;
  int local = 1;  ///< those that lie in one node
};
/// `stride`: ranks between neighbours of the group.
Placed place(int ranks, int stride, int per_node);
/// The stride of an axis: the product of the axes that vary faster.
int stride_of(const layout::Mesh& mesh, layout::Axis axis);

enum class Collective { all_reduce, all_gather, reduce_scatter, all_to_all };
/// Each rank has (all_gather: gets) so many bytes in all. `buffers`: of parameters or gradients, which processes of one
/// host share. Seconds; 0 for one rank.
double collective_seconds(const Cluster& cluster, const Placed& group, Collective what, double bytes,
                          bool buffers = false);
/// A message to a rank so many ranks away.
double message_seconds(const Cluster& cluster, int stride, double bytes);

}  // namespace tessera::plan
