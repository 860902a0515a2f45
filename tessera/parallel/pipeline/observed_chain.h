#pragma once
/// \file
/// Internal to PipelineParallel: derives a chain of layers from an unmodified module by observing its forward.
///
/// LibTorch has no module hooks, so the start of a block is not reported. But every operator that forward calls can be
/// observed (OperatorWatcher). One recorded call, with zeros in place of all parameters, so that no parameter needs
/// memory, shows which operator reads and writes which memory. Values that do not depend on any parameter (masks,
/// positions) are computed by every rank. A cut between two operators is possible where, of all values computed before
/// it that depend on parameters, only one tensor is still needed: that makes it a chain; skip connections, reused
/// blocks and the like appear as additional tensors. Of the possible cuts between two registered blocks the last one is
/// used.
///
/// A stage runs the whole forward, but operators outside of its part do nothing: they return tensors of the recorded
/// sizes without memory, and the operator that computed the tensor at the cut returns the received one. Every operator
/// must match the one recorded at its position, and an operator that a stage runs cannot read results of other stages,
/// so a forward whose control flow differs ends in an error.

#include <tessera/parallel/pipeline/layer_chain.h>

#include <functional>
#include <memory>

namespace tessera::parallel {

/// Records `forward` on `sample` in both modes (train, eval). Throws InputError for a forward whose control flow
/// depends on values of tensors that depend on parameters.
std::unique_ptr<LayerChain> observe_chain(torch::nn::Module& root, std::function<at::Tensor(const at::Tensor&)> forward,
                                          const at::Tensor& sample);

}  // namespace tessera::parallel
