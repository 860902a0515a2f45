#pragma once
/// \file
/// --preference_loss: pairs of answers in a run: what the reference says of them, the loss of a micro-batch, and what
/// the log says. The loss itself is in train/loss/preference.h.

#include <memory>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

class RunFeature;

/// null: it is off.
std::unique_ptr<RunFeature> make_preferences(const RunConfig& config);

}  // namespace tessera::train
