#pragma once
/// \file
/// --preference_loss: training on pairs of answers, with the reference's log-probabilities, the loss of a micro-batch,
/// and the log output. The loss itself is in train/loss/preference.h.

#include <memory>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

class RunFeature;

/// Feature for --preference_loss; null: it is off.
std::unique_ptr<RunFeature> make_preferences(const RunConfig& config);

}  // namespace tessera::train
