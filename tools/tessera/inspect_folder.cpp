#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/manifest/state_folder.h>
#include <tools/tessera/inspect_folder.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

namespace tessera::tool {
namespace {

/// The member under the first of `names` that is present and not null. Old and new models spell their settings
/// differently.
const Value* first_of(const Value& object, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const Value* value = object.find(name); value != nullptr && !value->is_null()) return value;
  return nullptr;
}

std::string scalar_text(const Value& value) { return value.is_string() ? value.as_string() : dump_json(value, -1, 9); }

void add_number(Inspection& found, const Value& config, const char* key, const std::string& label,
                std::initializer_list<const char*> names) {
  const Value* value = first_of(config, names);
  if (value == nullptr || !value->is_number()) return;
  found.fact(label, scalar_text(*value));
  found.set(key, *value);
}

std::string rope_text(const Value& config) {
  const Value* parameters = first_of(config, {"rope_parameters"});  // transformers 5
  const Value* scaling = first_of(config, {"rope_scaling", "rope_parameters"});
  const Value* theta = parameters != nullptr && parameters->is_object() ? first_of(*parameters, {"rope_theta"})
                                                                        : first_of(config, {"rope_theta"});
  if (theta == nullptr) theta = first_of(config, {"rope_theta"});
  std::string text = theta == nullptr ? "" : "theta " + scalar_text(*theta);
  if (scaling == nullptr || !scaling->is_object()) return text;
  const Value* type = first_of(*scaling, {"rope_type", "type"});
  if (type == nullptr || scalar_text(*type) == "default") return text;
  const Value* factor = first_of(*scaling, {"factor"});
  return text + (text.empty() ? "" : ", ") + scalar_text(*type) +
         (factor == nullptr ? "" : " x " + scalar_text(*factor));
}

void add_manifest(Inspection& found, const std::string& folder) {
  std::string text = "every listed file exists with its size (checksums not compared)";
  bool whole = true;
  try {
    format::verify_sizes(folder, format::read_manifest(folder));
  } catch (const InputError& error) {
    whole = false;
    text = concat("DAMAGED: ", error.what());
  }
  found.fact("manifest", text);
  found.set("complete", Value::of(whole));
}

/// W of optimizer-0000R-of-0000W.safetensors: the number of ranks that wrote a checkpoint; nullopt for other names.
std::optional<std::int64_t> ranks_of(const std::string& path) {
  constexpr std::string_view before = "-of-", after = ".safetensors";
  const std::size_t at = path.rfind(before);
  if (at == std::string::npos || !path.ends_with(after)) return std::nullopt;
  return parse_int(std::string_view(path).substr(at + before.size(), path.size() - after.size() - at - before.size()));
}

void add_optimizer(Inspection& found, const std::string& folder) {
  const std::string path = path_join(folder, "optimizer.safetensors");
  if (!path_exists(path) && !path_exists(path + ".index.json")) {
    const bool torch = path_exists(path_join(folder, "optimizer.pt"));
    found.fact("optimizer", torch ? "optimizer.pt (a pickle of PyTorch's, not read)" : "not saved");
    return;
  }
  const format::StateFolder state(folder);
  const std::size_t files = state.files().size();
  found.fact("optimizer",
             concat(state.tensors().size(), " tensors, ", format_bytes(state.bytes()),
                    state.in_pieces() ? concat(", in pieces, ", files, files == 1 ? " file" : " files") : ""));
  if (const auto ranks = state.in_pieces() && files > 0 ? ranks_of(state.files()[0].path) : std::nullopt) {
    found.fact("written by", concat(*ranks, *ranks == 1 ? " rank" : " ranks", "; any number can resume it"));
    found.set("ranks", Value::of(*ranks));
  }
  found.set("optimizer_tensors", Value::of(static_cast<std::int64_t>(state.tensors().size())));
  found.set("optimizer_bytes", Value::of(static_cast<std::int64_t>(state.bytes())));
  found.set("optimizer_files", Value::of(static_cast<std::int64_t>(files)));
}

/// The step numbers of the checkpoint-N folders, ascending.
std::vector<std::int64_t> checkpoint_steps(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : list_folder(folder))
    if (name.starts_with("checkpoint-"))
      if (const auto step = parse_int(std::string_view(name).substr(11))) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

void add_model_config(Inspection& found, const std::string& folder) {
  const Value config = read_json(path_join(folder, "config.json"));
  const Value* type = first_of(config, {"model_type"});
  const Value* classes = first_of(config, {"architectures"});
  const std::string class_name =
      classes != nullptr && classes->is_array() && !classes->items().empty() ? scalar_text(classes->items()[0]) : "";
  const std::string type_name = type == nullptr ? "" : scalar_text(*type);
  found.fact("architecture", class_name.empty() ? (type_name.empty() ? "not specified" : type_name)
                                                : concat(class_name, type_name.empty() ? "" : " (" + type_name + ")"));
  found.set("model_type", Value::of(type_name));
  found.set("architecture", Value::of(class_name));
  add_number(found, config, "layers", "layers", {"num_hidden_layers", "n_layer"});
  add_number(found, config, "hidden_size", "hidden size", {"hidden_size", "n_embd"});
  add_number(found, config, "intermediate_size", "MLP size", {"intermediate_size", "n_inner"});
  add_number(found, config, "heads", "heads", {"num_attention_heads", "n_head"});
  add_number(found, config, "kv_heads", "key/value heads", {"num_key_value_heads"});
  add_number(found, config, "head_dim", "head size", {"head_dim"});
  add_number(found, config, "vocab_size", "vocabulary", {"vocab_size"});
  add_number(found, config, "context_length", "context", {"max_position_embeddings", "n_positions"});
  if (const std::string rope = rope_text(config); !rope.empty()) {
    found.fact("rope", rope);
    found.set("rope", Value::of(rope));
  }
  if (const Value* tied = first_of(config, {"tie_word_embeddings"})) {
    found.fact("output head", tied->as_bool() ? "tied to the token embedding" : "separate");
    found.set("tied", *tied);
  }
}

void add_adapter(Inspection& found, const std::string& folder) {
  const Value config = read_json(path_join(folder, "adapter_config.json"));
  const auto add = [&](const char* key, const char* label, const char* name) {
    const Value* value = first_of(config, {name});
    if (value == nullptr) return;
    found.fact(label, scalar_text(*value));
    found.set(key, *value);
  };
  add("peft_type", "method", "peft_type");
  add("base_model", "base model", "base_model_name_or_path");
  add("lora_r", "rank", "r");
  add("lora_alpha", "alpha", "lora_alpha");
  add("lora_dropout", "dropout", "lora_dropout");
  if (const Value* targets = first_of(config, {"target_modules"})) {
    std::vector<std::string> names;
    if (targets->is_array())
      for (const Value& name : targets->items()) names.push_back(scalar_text(name));
    else
      names.push_back(scalar_text(*targets));
    found.fact("targets", join(names));
    found.set("target_modules", *targets);
  }
}

void add_tokenizer(Inspection& found, const std::string& folder) {
  const std::string path = path_join(folder, "tokenizer.json"),
                    config_path = path_join(folder, "tokenizer_config.json");
  std::string text = "none";
  if (path_exists(path)) {
    const Value json = read_json(path);
    const Value& model = json.at("model");
    const Value* type = first_of(model, {"type"});
    const Value* words = first_of(json, {"pre_tokenizer"});
    const Value* vocabulary = first_of(model, {"vocab"});
    const Value* added = first_of(json, {"added_tokens"});
    const bool bytes = words != nullptr && dump_json(*words, -1).find("ByteLevel") != std::string::npos;
    text = concat(bytes ? "byte-level " : "", type == nullptr ? "BPE" : scalar_text(*type));
    found.set("tokenizer", Value::of(text));
    if (vocabulary != nullptr && vocabulary->is_object()) text += concat(", ", vocabulary->members().size(), " tokens");
    if (added != nullptr && added->is_array()) text += concat(", ", added->items().size(), " added");
  } else if (path_exists(path_join(folder, "tokenizer.model"))) {
    text = "SentencePiece (tokenizer.model, not read)";
    found.set("tokenizer", Value::of("SentencePiece"));
  } else {
    found.set("tokenizer", Value());
  }
  if (path_exists(path_join(folder, "chat_template.jinja")) ||
      (path_exists(config_path) && first_of(read_json(config_path), {"chat_template"}) != nullptr))
    text += ", chat template";
  found.fact("tokenizer", text);
}

void add_training_state(Inspection& found, const std::string& folder) {
  const std::string own = path_join(folder, "tessera_state.json"), trainer = path_join(folder, "trainer_state.json");
  const bool resumable = path_exists(own) || path_exists(path_join(folder, "optimizer.pt"));
  if (path_exists(trainer)) {
    const Value state = read_json(trainer);
    if (resumable) found.kind = "checkpoint of a run, a " + found.kind;
    const Value* step = first_of(state, {"global_step"});
    const Value* most = first_of(state, {"max_steps"});
    const Value* epoch = first_of(state, {"epoch"});
    if (step != nullptr) {
      found.fact("step", concat(scalar_text(*step), most == nullptr ? "" : " of " + scalar_text(*most),
                                epoch == nullptr ? "" : ", epoch " + format_real(epoch->as_real(), 4)));
      found.set("step", *step);
    }
  }
  if (resumable) add_optimizer(found, folder);
  if (path_exists(own)) {
    const Value state = read_json(own);
    std::vector<std::string> parts;
    for (const char* key : {"samples", "seed"})
      if (const Value* value = first_of(state, {key})) parts.push_back(concat(key, " ", scalar_text(*value)));
    if (const Value* mesh = first_of(state, {"mesh"}); mesh != nullptr && mesh->is_object()) {
      const Value *strategy = mesh->find("strategy"), *ranks = mesh->find("ranks");
      if (strategy != nullptr && ranks != nullptr)
        parts.push_back(concat("trained with ", scalar_text(*strategy), " on ", scalar_text(*ranks), " ranks"));
      found.set("mesh", *mesh);
    }
    if (const Value* configuration = first_of(state, {"configuration"})) found.set("configuration", *configuration);
    found.fact("run state", join(parts));
  }
  if (path_exists(path_join(folder, format::kManifestName))) add_manifest(found, folder);
  if (const auto steps = checkpoint_steps(folder); !steps.empty()) {
    std::vector<std::string> names;
    std::vector<Value> numbers;
    for (std::int64_t step : steps) {
      names.push_back(std::to_string(step));
      numbers.push_back(Value::of(step));
    }
    found.fact("checkpoints", concat("of steps ", join(names)));
    found.set("checkpoints", Value::make_array(std::move(numbers)));
  }
}

}  // namespace tessera::tool
