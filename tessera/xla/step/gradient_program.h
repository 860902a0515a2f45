#pragma once
/// \file
/// The program that adds the gradients of one micro-batch.
///
/// Order of events on a device, for every unit: gather its parameters before its first use in forward; drop them;
/// gather them again before its first use in backward (unless they stay gathered); with recomputation run its forward
/// once more from what it was given; at the end sum its gradients over the devices, of which each keeps its part. An
/// optimization_barrier between the latest value and a unit's part keeps the compiler from gathering all units at once,
/// and from taking the second gather for the first.

#include <tessera/xla/capture/graph.h>
#include <tessera/xla/step/flat_units.h>

#include <string>
#include <vector>

namespace tessera::xla {

struct GradientOptions {
  int devices = 1;
  bool shard = true;                  ///< parameters are divided; false: every device has all of them
  bool reshard_after_forward = true;  ///< drop gathered parameters between forward and backward
  bool recompute = false;             ///< keep of a unit's forward its inputs only
};

/// Arguments: parts of all units; accumulated gradients of trained units (donated); the accumulated loss, a scalar
/// (donated); the micro-batch; `constants`; where there are `draws`, keys() of a pass. Results: gradients, loss.
struct GradientProgram {
  std::string text;
  std::vector<at::Tensor> constants;  ///< larger than what is written into a program
  std::vector<Draw> draws;
};

/// `graph`'s outputs: the loss, a scalar of fp32, and a gradient (or none) for each parameter. Throws InputError for
/// operators without a rule.
GradientProgram gradient_program(const Graph& graph, const std::vector<FlatUnit>& units,
                                 const GradientOptions& options);

}  // namespace tessera::xla
