#pragma once
/// \file
/// --preference_loss trains on pairs of answers. This feature computes the reference's log-probabilities and the loss
/// of a micro-batch, and logs the metrics; the formulas are in train/loss/preference.h.

#include <memory>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

class RunFeature;

/// Feature for --preference_loss; null: it is off.
std::unique_ptr<RunFeature> make_preferences(const RunConfig& config);

}  // namespace tessera::train
