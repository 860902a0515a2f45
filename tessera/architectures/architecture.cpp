#include <tessera/architectures/architecture.h>

#include <tessera/architectures/config_value.h>
#include <tessera/architectures/families.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>

namespace tessera::architectures {

std::span<const Architecture* const> all_architectures() { return families; }

const Architecture& architecture_of(const Value& config) {
  require_object(config);
  const Value* type = config.find("model_type");
  const Value* classes = config.find("architectures");
  const Value* first = classes && classes->is_array() && !classes->items().empty() ? &classes->items()[0] : nullptr;
  const Value* found = type ? type : first;
  const Architecture* of_type = nullptr;
  std::string known;
  for (const Architecture* a : all_architectures()) {
    const bool same_class = first && first->is_string() && first->as_string() == a->architecture;
    const bool same_type = type && type->as_string() == a->model_type;
    if (same_class && (same_type || !type)) return *a;
    if (same_type && !of_type) of_type = a;
    if (!known.ends_with(a->model_type)) known += concat(known.empty() ? "" : ", ", a->model_type);
  }
  if (of_type) return *of_type;
  if (!found)
    throw InputError(
        concat(config.where().str(), ": neither model_type nor architectures is given; known model types: ", known));
  throw InputError(
      concat(found->where().str(), ": model type \"", found->as_string(), "\" is not supported; known: ", known));
}

const Architecture* architecture_for(std::string_view model_type, Task task) {
  for (const Architecture* a : all_architectures())
    if (model_type == a->model_type && task == a->task) return a;
  return nullptr;
}

namespace {

/// Adds the blocks of multi-token prediction, which have the structure of the last block.
void add_depths(const Value& config, ModelSpec& spec) {
  spec.depths = prediction_depths(config);
  const auto extend = [&](auto& per_layer) {
    if (!per_layer.empty()) per_layer.resize(static_cast<std::size_t>(spec.layers + spec.depths), per_layer.back());
  };
  extend(spec.windows), extend(spec.rotations), extend(spec.sparse);
  if (spec.linear) extend(spec.linear->layers);
}

/// Applies config.json's use_mup (mup.h) to scores, embeddings and logits.
void add_mup(const Value& config, ModelSpec& spec) {
  spec.mup = read_mup(config, spec.hidden);
  if (!spec.mup) return;
  const Multipliers& own = spec.multipliers;
  const bool plain = own.embedding == 1 && own.residual == 1 && own.logits == 1 &&
                     std::abs(spec.score_scale * std::sqrt(static_cast<double>(spec.head_size)) - 1) < 1e-9;
  const char* const why = spec.family == Family::bert   ? "it is only for decoders"
                          : spec.family == Family::gpt2 ? nullptr
                          : spec.latent                 ? "latent attention has its own scale"
                          : spec.linear                 ? "linear attention has no scores to scale"
                          : spec.head_bias              ? "the head has a bias, for which it defines no scale"
                          : spec.caps.scores > 0 || spec.caps.logits > 0 ? "scores or logits are capped"
                          : !plain ? "the family has its own factors for scores, embeddings or logits"
                                   : nullptr;
  if (why != nullptr)
    throw InputError(concat(config.at("use_mup").where().str(), ": use_mup is not supported here: ", why,
                            "; use a GPT-2, Llama, Mistral, Qwen or OPT model, or remove use_mup"));
  spec.score_scale = spec.mup->score_scale(spec.head_size);
  spec.multipliers.embedding = spec.mup->embedding;
  spec.multipliers.logits = spec.mup->logits;
}

}  // namespace

ModelSpec read_model(const Value& config) {
  const Architecture& row = architecture_of(config);
  ModelSpec spec;
  spec.type = row.model_type;
  spec.family = row.family;
  row.read(config, spec);
  if (spec.vision) return spec;  // this function has already read its decoder
  constexpr std::int64_t most_experts = 1 << 20;
  if (spec.experts && spec.layers * spec.experts->count > most_experts)
    throw InputError(concat(config.where().str(), ": ", spec.layers, " layers of ", spec.experts->count,
                            " experts; at most ", most_experts, " in total are supported"));
  add_depths(config, spec);
  add_mup(config, spec);
  if (std::ranges::all_of(spec.windows, [](std::int64_t window) { return window == 0; })) spec.windows.clear();
  return spec;
}

std::int64_t prediction_depths(const Value& config) {
  const Value* const asked = given(config, "mtp_num_layers");
  if (asked == nullptr) return 0;
  const std::int64_t depths = asked->as_int();
  if (depths < 0 || depths > 16)
    throw InputError(concat(asked->where().str(), ": mtp_num_layers is ", depths, "; it must be in [0, 16]"));
  if (depths == 0) return 0;
  const Value* const type = config.find("model_type");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : std::string();
  std::vector<std::string> families;
  for (const Architecture* a : all_architectures())
    if (a->predicts) families.emplace_back(a->model_type);
  if (std::ranges::find(families, name) == families.end())
    throw InputError(concat(asked->where().str(), ": mtp_num_layers ", depths, ": a model of type \"", name,
                            "\" has no multi-token prediction; supported types: ", join(families),
                            ". Remove mtp_num_layers"));
  const Value* const positions = config.find("position_embedding_type");
  const bool rotated = positions != nullptr && positions->is_string() && positions->as_string() == "rope";
  if (name == megatron_gpt.model_type && !rotated)
    throw InputError(concat(asked->where().str(), ": mtp_num_layers ", depths,
                            " with learned positions: multi-token prediction needs rotary positions; use "
                            "position_embedding_type rope, or remove mtp_num_layers"));
  return depths;
}

bool sees_images(const Value& config) {
  const Value* const type = config.find("model_type");
  return type != nullptr && type->is_string() && type->as_string() == llava.model_type;
}

}  // namespace tessera::architectures
