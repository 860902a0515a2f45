#pragma once
/// \file
/// Internal to PipelineParallel: the forward of an unedited module as a chain of layers, found out by watching it.
///
/// LibTorch has no module hooks, so nobody tells when a block begins. But every operator that forward calls can be seen
/// (OperatorWatcher). Once, with stand-ins of zeros for all parameters, so that nothing need be built, it is written
/// down which operator reads and writes which memory. What depends on no parameter (masks, positions) is every rank's
/// own business. A cut between two operators is possible where one tensor alone is still needed of all that was
/// computed before and depends on parameters: that is what a chain means, and skip connections, blocks that are used
/// again and the like show as more tensors. Of the possible cuts between two registered blocks the last one is taken.
///
/// A stage runs the whole forward, in which operators outside of its part do nothing: they give tensors of the recorded
/// sizes without memory, and the operator that made the tensor at the cut gives what was received. Every operator must
/// be the one that was recorded in its place, and one that a stage runs cannot read what other stages compute: a
/// forward that takes another course ends in an error.

#include <tessera/parallel/pipeline/layer_chain.h>

#include <functional>
#include <memory>

namespace tessera::parallel {

/// Records `forward` on `sample` in both modes (train, eval). Throws InputError for a forward whose course depends on
/// values of tensors that depend on parameters.
std::unique_ptr<LayerChain> observe_chain(torch::nn::Module& root, std::function<at::Tensor(const at::Tensor&)> forward,
                                          const at::Tensor& sample);

}  // namespace tessera::parallel
