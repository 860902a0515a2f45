#pragma once
/// \file
/// Which architectures exist. A new model is one pair of files and one row in registry.cpp.

#include <tessera/models/language_model.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::models {

struct Architecture {
  const char* model_type;    ///< config.json's model_type
  const char* architecture;  ///< the class in config.json's architectures
  std::shared_ptr<LanguageModel> (*make)(const Value& hf_config, std::optional<std::uint64_t> seed);
  /// Parameter name of a tensor found in a folder; empty: to be left aside (a buffer, a tied copy).
  std::string (*tensor_name)(const std::string& name_in_file, const Value& hf_config);
  /// Parameter that a tied head shares: a folder may hold it under lm_head.weight alone.
  const char* embedding;
  /// Hugging Face's class of the blocks, as --fsdp_transformer_layer_cls_to_wrap names it, and our class.
  const char* hf_block;
  const char* block;
  data::Objective::Kind objective = data::Objective::Kind::next_token;
  /// Parameters that a folder may lack, a head that the model was saved without: they keep their initial values.
  /// nullptr: none.
  bool (*may_be_new)(const std::string& parameter) = nullptr;
};

/// By model_type and, where a type has several, the one of architectures[0] (else the type's first); without model_type
/// by architectures[0]. Another one throws InputError with its position and the list of known types.
const Architecture& architecture_of(const Value& hf_config);
/// The row of a model_type that learns `objective`; nullptr: there is none.
const Architecture* architecture_for(std::string_view model_type, data::Objective::Kind objective);
/// Hugging Face's classes of blocks and ours, where the names differ (layout::WrapPolicy::class_aliases).
std::vector<std::pair<std::string, std::string>> block_class_aliases();

}  // namespace tessera::models
