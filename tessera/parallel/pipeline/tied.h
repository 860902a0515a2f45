#pragma once
/// \file
/// A parameter that the first and the last stage of a pipeline both hold: embeddings that are the head's matrix, too
/// (Megatron-LM's embedding group).

#include <tessera/comm/group.h>
#include <tessera/parallel/fully_shard.h>

#include <string>

namespace tessera::parallel {

/// After Sharded::reduce(), before norms and the optimizer: the gradient of `parameter` becomes the sum of both ranks',
/// with the same bits on both, however each divides it. `first`, `last`: their ranks in `pipeline`; on others, where
/// both are one, for a frozen parameter and for "" it does nothing. Collective over the data-parallel ranks of both
/// stages.
void add_tied_gradients(Sharded& sharded, const std::string& parameter, const comm::Group& pipeline, int first,
                        int last);

}  // namespace tessera::parallel
