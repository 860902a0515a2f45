#pragma once
/// \file
/// xla/capture/: how a step becomes a graph: it runs once, on tensors that have sizes but no memory.
///
/// Below autograd every operator comes to a handler (parallel/recorder/operator_recorder.h). One that depends on
/// parameters or inputs is not run: its results' sizes come from LibTorch's meta kernels, and it is written down. One
/// that depends on neither (a mask, positions) runs, and what it made is a constant. Views run, as they touch no data.
///
/// A value is known by its memory and geometry (storage, offset, sizes, strides), because autograd makes tensors of
/// saved memory without an operator. A write in place gives the written geometry a new value and forgets the others of
/// the same memory; reading one of those is refused.

#include <tessera/xla/capture/graph.h>

#include <functional>
#include <string>
#include <vector>

namespace tessera::xla {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// Runs `body` once with a tensor without memory for each of `inputs` and returns what it did; its results are the
/// graph's outputs. Parameters keep their values; random generators are not used. Dropout by place (nn/dropout.h) is a
/// draw of the graph, whatever key its place has: each run has a key of its own.
///
/// Throws InputError for a step that a compiled program cannot repeat: one whose course depends on data (item(),
/// nonzero()), one that draws random numbers, changes a tensor from before the step in place (a buffer, a parameter),
/// or reads memory that was written through another view. What body throws comes through.
using Body = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
Graph capture(const std::vector<NamedParameter>& parameters, const std::vector<ValueInfo>& inputs, const Body& body);

}  // namespace tessera::xla
