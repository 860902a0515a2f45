#pragma once
/// \file
/// --streaming: saves the stream's position in checkpoints and restores it (data/stream/row_stream.h).

#include <memory>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

class RunFeature;

/// Also used without --streaming: it then refuses to resume from a checkpoint of a streaming run.
std::unique_ptr<RunFeature> make_streaming(const RunConfig& config);

}  // namespace tessera::train
