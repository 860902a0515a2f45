#pragma once
/// \file
/// config/rules/: rules between settings for particular training methods. This header: rules between --preference_loss
/// and the other settings.

#include <tessera/config/sections/words.h>

namespace tessera::config {

struct Problems;
struct Resolved;

/// Whether the loss needs a reference model.
bool needs_reference(PreferenceLoss loss);

/// Translates SimPO's trainer, which calls its loss sigmoid and gives the margin as a multiple of beta
/// (gamma_beta_ratio).
void derive_preferences(Resolved& resolved);

/// Adds settings that pairs of answers cannot be trained with, and pair settings without a preference loss, to
/// `problems`.
void validate_preferences(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
