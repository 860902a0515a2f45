#pragma once
/// \file
/// The program that adds the gradients of one micro-batch.
///
/// Order of events on a device, for every unit: gather its parameters before their first use in forward; drop them;
/// gather them again before their first use in backward (unless they stay gathered); with recomputation, run its
/// forward again from its inputs; at the end, sum its gradients over the devices, each of which keeps its part. An
/// optimization_barrier between the latest value and a unit's part keeps the compiler from gathering all units at once,
/// and from merging the second gather with the first.
///
/// A global program has neither: arguments, results and outputs of layers are annotated as divided on dimension 0, and
/// the compiler's partitioner (GSPMD) adds the collectives. Annotations are attributes named mhlo.sharding, which
/// plug-ins of all versions read without further options; Shardy's are a dialect, whose text changes with versions.

#include <tessera/xla/capture/graph.h>
#include <tessera/xla/step/flat_units.h>

#include <string>
#include <vector>

namespace tessera::xla {

struct GradientOptions {
  int devices = 1;
  bool shard = true;                  ///< parameters are divided; false: every device has complete ones
  bool reshard_after_forward = true;  ///< drop gathered parameters between forward and backward
  bool recompute = false;             ///< keep only the inputs of a unit's forward
  bool forward_only = false;          ///< the loss alone, for evaluations
  bool global = false;                ///< annotations instead of collectives; the graph has the rows of all devices
};

/// Arguments: parts of all units; accumulated gradients of trained units (donated); the accumulated loss, a scalar
/// (donated); the micro-batch; `constants`; with `draws`, keys() of the pass. Results: gradients, loss. With
/// forward_only there are neither gradients nor an accumulated loss; the result is the micro-batch's loss.
struct GradientProgram {
  std::string text;
  std::vector<at::Tensor> constants;  ///< constants too large to embed in the program
  std::vector<Draw> draws;
};

/// `graph`'s outputs: the loss, an fp32 scalar, and, unless forward_only, for each parameter a gradient or no_value.
/// Throws InputError for operators without a rule.
GradientProgram gradient_program(const Graph& graph, const std::vector<FlatUnit>& units,
                                 const GradientOptions& options);

}  // namespace tessera::xla
