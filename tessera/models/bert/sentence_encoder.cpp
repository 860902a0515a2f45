#include <tessera/models/bert/sentence_encoder.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/models/load.h>

namespace tessera::models {
namespace {

/// Reads 1_Pooling/config.json: one true member per kind of pooling in use; newer files specify it by name.
Pooling read_pooling(const Value& json) {
  static constexpr std::pair<const char*, Pooling> known[] = {
      {"mean", Pooling::mean}, {"cls", Pooling::cls}, {"max", Pooling::max}};
  const Value* chosen = nullptr;
  std::string name;
  if (const Value* mode = json.find("pooling_mode"); mode && mode->is_string()) {
    chosen = mode;
    name = mode->as_string();
  }
  for (const auto& [key, value] : json.members()) {
    if (!key.starts_with("pooling_mode_") || !value.as_bool()) continue;
    if (chosen)
      throw InputError(
          concat(value.where().str(), ": several kinds of pooling at once are not supported; choose one (--pooling)"));
    chosen = &value;
    name = key.substr(13);
    if (name.ends_with("_tokens")) name.resize(name.size() - 7);
    if (name.ends_with("_token")) name.resize(name.size() - 6);
  }
  if (!chosen) throw InputError(concat(json.where().str(), ": no kind of pooling is selected; choose one (--pooling)"));
  for (const auto& [word, pooling] : known)
    if (name == word) return pooling;
  throw InputError(concat(chosen->where().str(), ": pooling \"", name,
                          "\" is not supported; supported: mean, cls, max (--pooling)"));
}

}  // namespace

SentenceOptions read_sentence_options(const std::string& folder, std::string& weights_folder,
                                      std::optional<Pooling> pooling) {
  SentenceOptions options;
  if (pooling) options.pooling = *pooling;
  weights_folder = folder;
  const std::string modules = path_join(folder, "modules.json");
  if (path_exists(modules)) {
    const Value list = read_json(modules);
    for (const Value& module : list.items()) {
      const Value& type = module.at("type");
      const std::string& name = type.as_string();
      const std::string kind = name.substr(name.rfind('.') + 1), path = module.at("path").as_string();
      if (kind == "Transformer") {
        if (!path.empty()) weights_folder = path_join(folder, path);
      } else if (kind == "Pooling") {
        if (!pooling) options.pooling = read_pooling(read_json(path_join(path_join(folder, path), "config.json")));
      } else if (kind == "Normalize") {
        options.normalize = true;
      } else {
        throw InputError(concat(type.where().str(), ": the module ", name,
                                " is not supported; supported: Transformer, Pooling, Normalize"));
      }
    }
  }
  const auto limit = [&](const char* file, const char* key) {
    const std::string path = path_join(weights_folder, file);
    if (options.max_length > 0 || !path_exists(path)) return;
    const Value json = read_json(path);
    const Value* value = json.find(key);
    if (!value || !value->is_number() || value->as_real() < 1) return;
    // transformers writes 1e30 for "no limit"
    options.max_length = static_cast<std::int64_t>(std::min(value->as_real(), 1e9));
  };
  limit("sentence_bert_config.json", "max_seq_length");
  limit("tokenizer_config.json", "model_max_length");
  return options;
}

SentenceEncoder::SentenceEncoder(const Value& hf_config, SentenceOptions options)
    : options_(options), spec_(architectures::read_model(hf_config)) {
  bert = register_module("bert", std::make_shared<BertModel>(spec_));
}

at::Tensor SentenceEncoder::forward(const at::Tensor& ids, const std::vector<std::int64_t>& lengths) {
  const at::Tensor seen = seen_tokens(lengths, ids.size(1), ids.device());  // [B, T] or undefined
  BertContext context;
  context.lengths = lengths;
  const at::Tensor hidden = bert->forward(ids, {}, seen, std::move(context)).to(at::kFloat);  // [B, T, C]
  at::Tensor pooled;
  switch (options_.pooling) {
    case Pooling::cls:
      pooled = hidden.select(1, 0);
      break;
    case Pooling::max:
      pooled =
          (seen.defined() ? hidden.masked_fill(seen.logical_not().unsqueeze(2), -std::numeric_limits<float>::infinity())
                          : hidden)
              .amax(1);
      break;
    case Pooling::mean: {
      const at::Tensor counts = at::tensor(lengths, at::kFloat).to(ids.device()).unsqueeze(1);  // [B, 1]
      pooled = (seen.defined() ? hidden.masked_fill(seen.logical_not().unsqueeze(2), 0) : hidden).sum(1) / counts;
      break;
    }
  }
  if (!options_.normalize) return pooled;
  return pooled / pooled.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12);
}

std::shared_ptr<SentenceEncoder> load_sentence_encoder(const std::string& folder, std::optional<Pooling> pooling,
                                                       std::optional<bool> normalize, std::int64_t max_length) {
  if (!is_directory(folder)) throw InputError(concat("the model folder ", folder, " does not exist"));
  std::string weights_folder;
  SentenceOptions options = read_sentence_options(folder, weights_folder, pooling);
  if (normalize) options.normalize = *normalize;
  Value config = read_json(path_join(weights_folder, "config.json"));
  const Value* type = config.find("model_type");
  if (type && type->as_string() != "bert")
    throw InputError(concat(type->where().str(), ": model type \"", type->as_string(),
                            "\" cannot embed texts here; supported: bert"));
  config.set("model_type", Value::of("bert"));
  config.set("architectures", Value::make_array({Value::of("BertModel")}));
  const std::int64_t positions = architectures::read_model(config).positions;
  if (max_length > positions)
    throw InputError(
        concat("--max_length ", max_length, " is longer than the model's ", positions, " positions: lower it"));
  if (max_length > 0) options.max_length = max_length;
  options.max_length = options.max_length > 0 ? std::min(options.max_length, positions) : positions;
  auto encoder = std::make_shared<SentenceEncoder>(config, options);
  load_weights(*encoder, config, weights_folder);
  encoder->eval();
  return encoder;
}

}  // namespace tessera::models
