#pragma once
/// \file
/// Measures the cost of a chain's layers on this machine.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/parallel/pipeline/layer_chain.h>

#include <vector>

namespace tessera::parallel {

/// Seconds of forward and backward of each layer for a micro-batch of `sample`, the same on every rank: the median of
/// up to five runs after one warm-up, within about a second per layer. Rank r measures the r-th part of the layers
/// while the others wait, so that no rank builds more than its part of a deferred module, and ranks do not disturb each
/// other. Gradients, random states and buffers are left unchanged. Throws InputError for a layer that does not return
/// one tensor. Collective.
std::vector<double> measure_layers(LayerChain& chain, const LayerTensors& tensors, const comm::Group& group,
                                   const at::Tensor& sample);

/// Sends a tensor of one rank to all, sizes and type first. Collective; `tensor` is used only on `root`.
at::Tensor share_tensor(const comm::Group& group, int root, const at::Tensor& tensor);

}  // namespace tessera::parallel
