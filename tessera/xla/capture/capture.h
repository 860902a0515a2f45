#pragma once
/// \file
/// xla/capture/: turns a step into a graph by running it once on tensors that have sizes but no memory.
///
/// Below autograd, every operator reaches a handler (parallel/recorder/operator_recorder.h). An operator that depends
/// on parameters or inputs is recorded, not run; LibTorch's meta kernels compute its results' sizes. An operator that
/// depends on neither (for a mask or positions) runs, and its results are constants. Views run, because they touch no
/// data.
///
/// A value is identified by its memory and geometry (storage, offset, sizes, strides), because autograd creates tensors
/// from saved memory without an operator. An in-place write gives the written geometry a new value and invalidates the
/// other values in the same memory; reading an invalidated value is an error.

#include <tessera/xla/capture/graph.h>

#include <functional>
#include <string>
#include <vector>

namespace tessera::xla {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// Runs `body` once, with a tensor without memory for each of `inputs`, and returns the recorded graph, whose outputs
/// are the results of `body`. Parameters keep their values; random generators are not used. Dropout by place
/// (nn/dropout.h) becomes a draw of the graph; the key of its place is ignored because each run has its own key.
///
/// Throws InputError for a step that a compiled program cannot repeat: its control flow depends on data (item(),
/// nonzero()), or it draws random numbers, changes in place a tensor that existed before the step (a buffer, a
/// parameter), or reads memory that was written through another view. Exceptions of `body` pass through.
using Body = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
Graph capture(const std::vector<NamedParameter>& parameters, const std::vector<ValueInfo>& inputs, const Body& body);

}  // namespace tessera::xla
