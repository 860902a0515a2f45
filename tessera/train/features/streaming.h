#pragma once
/// \file
/// --streaming: where the stream of rows goes on, in checkpoints (data/stream/row_stream.h).

#include <memory>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

class RunFeature;

/// A run without --streaming has it, too: it refuses to go on from a checkpoint of one with it.
std::unique_ptr<RunFeature> make_streaming(const RunConfig& config);

}  // namespace tessera::train
