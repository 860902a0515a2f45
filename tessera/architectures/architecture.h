#pragma once
/// \file
/// The families that there are, and the one reader of a model's config.json: trainer, planner and checks see the same
/// values, and refuse an unknown family with the same words. A new family is a file in families/ and its line in
/// families.h.

#include <tessera/architectures/spec.h>
#include <tessera/base/value.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::architectures {

/// The objective that a class of models is trained for.
enum class Task : std::uint8_t { next_token, masked_token, row_class };

/// A class of transformers, and what Tessera knows of it.
struct Architecture {
  const char* model_type;    ///< config.json's model_type
  const char* architecture;  ///< the class in config.json's architectures
  const char* hf_block;      ///< the class of the blocks, as --fsdp_transformer_layer_cls_to_wrap names it
  /// Fills the spec, whose `type` is set already. Throws InputError "file:line:column: ..." for a missing key, a value
  /// out of range, and a member that would change the model in a way that it does not have here.
  void (*read)(const Value& config, ModelSpec& spec);
  /// The parameter that a tensor in a folder is for; empty: none (a buffer, a tied copy). tensor_names.h has the usual.
  std::string (*tensor_name)(const std::string& name_in_file, const Value& config);
  Family family = Family::llama;
  Task task = Task::next_token;
  bool predicts = false;  ///< mtp_num_layers may add depths of multi-token prediction (models/decoders/prediction.h)
  /// Parameters that a folder may lack, a head that the model was saved without: they keep their initial values.
  /// nullptr: none.
  bool (*may_be_new)(const std::string& parameter) = nullptr;
  /// The small preset "TYPE-tiny" (presets.h) as JSON: the members that the common small decoder lacks or has
  /// otherwise, or, with a vocab_size, all of them. nullptr: there is no such preset.
  const char* preset = nullptr;
};

/// All of them, the first of a model_type first.
std::span<const Architecture* const> all_architectures();
/// By model_type and, where a type has several, the one of architectures[0] (else the type's first); without model_type
/// by architectures[0]. Another one throws InputError with its position and the list of known types.
const Architecture& architecture_of(const Value& config);
/// The class of a model_type for a task; nullptr: there is none.
const Architecture* architecture_for(std::string_view model_type, Task task);

/// Reads the config.json of any family. Throws InputError as Architecture::read does, and for more layers or experts
/// than any machine could hold.
ModelSpec read_model(const Value& config);

/// config.json's mtp_num_layers; 0 where it is absent. DeepSeek-V3's num_nextn_predict_layers does not ask for depths:
/// transformers leaves those weights aside, and so does a model here without mtp_num_layers. Throws InputError
/// "file:line:column: ..." outside [0, 16], for a family without depths, and beside learned positions, which
/// Megatron-LM refuses, too.
std::int64_t prediction_depths(const Value& config);

/// Whether a config.json is that of a model that sees images.
bool sees_images(const Value& config);

}  // namespace tessera::architectures
