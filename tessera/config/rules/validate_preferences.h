#pragma once
/// \file
/// config/rules/: rules between settings that concern one way of training. This header: what must hold between
/// --preference_loss and the other settings.

#include <tessera/config/sections/words.h>

namespace tessera::config {

struct Problems;
struct Resolved;

/// Whether the loss compares with a reference model.
bool needs_reference(PreferenceLoss loss);

/// SimPO's trainer calls its loss sigmoid, and gives the margin as a multiple of beta (gamma_beta_ratio).
void derive_preferences(Resolved& resolved);

/// Adds to `problems` what pairs of answers cannot be trained with, and settings about pairs that have no loss of pairs
/// to act on.
void validate_preferences(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
