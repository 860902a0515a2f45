#pragma once
/// \file
/// A parameter that the first and the last stage of a pipeline both hold: embeddings that are the head's matrix, too
/// (Megatron-LM's embedding group).

#include <tessera/comm/group.h>
#include <tessera/parallel/fully_shard.h>

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tessera::parallel {

/// After Sharded::reduce(), before norms and the optimizer: the gradient of `parameter` becomes the sum of both ranks',
/// with the same bits on both, however each divides it. `first`, `last`: their ranks in `pipeline`; on others, where
/// both are one, for a frozen parameter and for "" it does nothing. Collective over the data-parallel ranks of both
/// stages.
void add_tied_gradients(Sharded& sharded, const std::string& parameter, const comm::Group& pipeline, int first,
                        int last);

/// The same where no engine is around the module: grad() of `parameter`, which the ranks `holders` of `pipeline` have,
/// becomes the sum of theirs, added in the order of `holders`, with the same bits on all; one without a gradient adds
/// nothing, and where nobody has one it stays undefined. On other ranks it does nothing. Collective over the holders.
void add_tied_gradients(const at::Tensor& parameter, const comm::Group& pipeline, const std::vector<int>& holders);

}  // namespace tessera::parallel
