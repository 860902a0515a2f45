#pragma once
/// \file
/// What the layers of a chain cost on this machine.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/parallel/pipeline/layer_chain.h>

#include <vector>

namespace tessera::parallel {

/// Seconds of forward and backward of each layer for a micro-batch of `sample`, the same on every rank: the median of
/// up to five runs after one that does not count, within about a second per layer. Rank r measures the r-th part of the
/// layers while the others wait, so that no rank builds more than that of a deferred module, and none disturbs another.
/// Gradients, random states and buffers are as before. Throws InputError for a layer that does not give one tensor.
/// Collective.
std::vector<double> measure_layers(LayerChain& chain, const LayerTensors& tensors, const comm::Group& group,
                                   const at::Tensor& sample);

/// For tensors that one rank has and all need: sizes and type first. Collective; `tensor` counts on `root`.
at::Tensor share_tensor(const comm::Group& group, int root, const at::Tensor& tensor);

}  // namespace tessera::parallel
