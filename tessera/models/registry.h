#pragma once
/// \file
/// From an architecture (architectures/architecture.h) to its modules.

#include <tessera/models/language_model.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::models {

/// The model that a config.json describes. Weights are initialised from `seed`; without one they stay uninitialised.
/// Throws InputError as architectures::read_model() does.
std::shared_ptr<LanguageModel> build(const Value& hf_config, std::optional<std::uint64_t> seed);
/// Hugging Face's classes of blocks and ours, where the names differ (layout::WrapPolicy::class_aliases).
std::vector<std::pair<std::string, std::string>> block_class_aliases();

}  // namespace tessera::models
