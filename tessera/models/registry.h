#pragma once
/// \file
/// Builds the modules of an architecture (architectures/architecture.h).

#include <tessera/models/language_model.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::models {

/// The model that a config.json describes. Weights are initialized from `seed`; without one they stay uninitialized.
/// Throws the InputErrors of architectures::read_model().
std::shared_ptr<LanguageModel> build(const Value& hf_config, std::optional<std::uint64_t> seed);
/// Hugging Face's classes of blocks and ours, where the names differ (layout::WrapPolicy::class_aliases).
std::vector<std::pair<std::string, std::string>> block_class_aliases();

}  // namespace tessera::models
