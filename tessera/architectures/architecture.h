#pragma once
/// \file
/// The supported families, and the single reader of a model's config.json: trainer, planner and checks see the same
/// values, and reject an unknown family with the same message. A new family is a file in families/ and its line in
/// families.h.

#include <tessera/architectures/spec.h>
#include <tessera/base/value.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::architectures {

/// The training objective of a class of models.
enum class Task : std::uint8_t { next_token, masked_token, row_class };

/// A model class of Hugging Face's transformers, and its properties.
struct Architecture {
  const char* model_type;    ///< config.json's model_type
  const char* architecture;  ///< the class in config.json's architectures
  const char* hf_block;      ///< the class of the blocks, for --fsdp_transformer_layer_cls_to_wrap
  /// Fills the spec, whose `type` is already set. Throws InputError "file:line:column: ..." for a missing key, a value
  /// out of range, and a member that would change the model in an unsupported way.
  void (*read)(const Value& config, ModelSpec& spec);
  /// The parameter for a tensor in a folder; empty: none (a buffer, a tied copy). tensor_names.h has the usual rules.
  std::string (*tensor_name)(const std::string& name_in_file, const Value& config);
  Family family = Family::llama;
  Task task = Task::next_token;
  bool predicts = false;  ///< mtp_num_layers may add depths of multi-token prediction (models/decoders/prediction.h)
  /// Parameters that a folder may lack, such as a head that was not saved: they keep their initial values. nullptr:
  /// none.
  bool (*may_be_new)(const std::string& parameter) = nullptr;
  /// The small preset "TYPE-tiny" (presets.h) as JSON: the members that differ from the common small decoder, or, with
  /// a vocab_size, all members. nullptr: no such preset.
  const char* preset = nullptr;
};

/// All architectures; the default class of each model_type comes first.
std::span<const Architecture* const> all_architectures();
/// Selects by model_type and, if a type has several, by architectures[0] (otherwise the type's first); without
/// model_type by architectures[0]. Throws InputError for unknown ones, with the position and the list of known types.
const Architecture& architecture_of(const Value& config);
/// The class of a model_type for a task; nullptr if there is no such class.
const Architecture* architecture_for(std::string_view model_type, Task task);

/// Reads the config.json of any family. Throws InputError like Architecture::read, and for more layers or experts than
/// any machine could hold.
ModelSpec read_model(const Value& config);

/// Returns config.json's mtp_num_layers; 0 if absent. DeepSeek-V3's num_nextn_predict_layers does not enable depths:
/// transformers ignores those weights, and so does a model here without mtp_num_layers. Throws InputError
/// "file:line:column: ..." outside [0, 16], for a family without depths, and with learned positions, which Megatron-LM
/// rejects as well.
std::int64_t prediction_depths(const Value& config);

/// Whether a config.json describes a vision-language model.
bool sees_images(const Value& config);

}  // namespace tessera::architectures
