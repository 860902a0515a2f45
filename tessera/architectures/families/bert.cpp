// BERT (Devlin et al. 2019; transformers/models/bert) for masked tokens and for classification of rows.

#include <tessera/architectures/reading.h>

#include <string_view>

namespace tessera::architectures {
namespace {

void read_bert(const Value& json, ModelSpec& s) {
  s.vocabulary = positive(json, "vocab_size");
  s.hidden = positive(json, "hidden_size");
  s.layers = read_layers(json, "num_hidden_layers");
  s.heads = s.key_heads = positive(json, "num_attention_heads");
  check_divides(json, "hidden_size", s.hidden, "num_attention_heads", s.heads);
  s.head_size = s.hidden / s.heads;
  s.positions = positive(json, "max_position_embeddings");
  s.inner = positive_or(json, "intermediate_size", 4 * s.hidden);
  s.segments = positive_or(json, "type_vocab_size", 2);
  if (const Value* pad = given(json, "pad_token_id")) {
    s.pad_token = pad->as_int();
    if (s.pad_token < 0 || s.pad_token >= s.vocabulary)
      throw InputError(
          concat(pad->where().str(), ": pad_token_id ", s.pad_token, " is outside [0, ", s.vocabulary, ")"));
  }
  s.gated = s.causal = false;
  s.query_bias = s.output_bias = s.mlp_bias = true;
  s.activation = read_activation(json, "hidden_act", Activation::gelu_erf);
  const double dropout = probability(json, "hidden_dropout_prob", 0.1);
  s.drops = {.embedding = dropout,
             .attention = dropout,
             .mlp = dropout,
             .classifier = probability(json, "classifier_dropout", dropout)};
  s.attention_dropout = probability(json, "attention_probs_dropout_prob", 0.1);
  s.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "layer_norm_eps", 1e-12)};
  s.initializer_range = positive_real(json, "initializer_range", 0.02);
  s.tied = flag(json, "tie_word_embeddings", true);
  s.names = {.model = "bert.embeddings", .embedding = "word_embeddings", .positions = "position_embeddings"};
  s.position_rows = s.positions;
  for (const char* key : {"is_decoder", "add_cross_attention"})
    refuse_flag(json, key, " is not supported: BERT is an encoder here");
  if (const Value* kind = given(json, "position_embedding_type"); kind && kind->as_string() != "absolute")
    throw InputError(concat(kind->where().str(), ": position_embedding_type \"", kind->as_string(),
                            "\" is not supported; supported: absolute"));
}

bool has_architecture(const Value& config, std::string_view name) {
  const Value* classes = config.find("architectures");
  return classes && classes->is_array() && !classes->items().empty() && classes->items()[0].as_string() == name;
}

/// Reads the number of classes: the size of id2label if present, otherwise num_labels.
void read_classifier(const Value& json, ModelSpec& s) {
  read_bert(json, s);
  s.labels = positive_or(json, "num_labels", 2);
  if (const Value* labels = given(json, "id2label")) s.labels = static_cast<std::int64_t>(labels->members().size());
  if (s.labels < 1) throw InputError(concat(json.at("id2label").where().str(), ": id2label is empty"));
}

/// Folders saved from BertModel lack the prefix "bert.", old ones have LayerNorm.gamma and LayerNorm.beta. Empty for
/// tensors without a parameter: position_ids, the tied decoder, next sentence prediction, another task's head, an
/// unused pooler.
std::string bert_tensor_name(const std::string& name_in_file, const Value& config) {
  std::string name = name_in_file;
  for (const auto& [old, now] : {std::pair(".gamma", ".weight"), std::pair(".beta", ".bias")})
    if (name.ends_with(old))
      name.replace(name.size() - std::string_view(old).size(), std::string_view(old).size(), now);
  for (const char* part : {"embeddings.", "encoder.", "pooler."})
    if (name.starts_with(part)) name = "bert." + name;
  const bool classifies = has_architecture(config, "BertForSequenceClassification");
  const bool predicts = has_architecture(config, "BertForMaskedLM");
  if (name == "bert.embeddings.position_ids" || name == "bert.embeddings.token_type_ids") return {};
  if (name.starts_with("bert.pooler.") && !classifies) return {};
  if (name.starts_with("classifier.") && !classifies) return {};
  if (name.starts_with("cls.predictions.") && !predicts) return {};
  if (name.starts_with("cls.seq_relationship.") || name == "cls.predictions.decoder.bias") return {};
  if (name == "cls.predictions.decoder.weight" && flag(config, "tie_word_embeddings", true)) return {};
  return name;
}

/// Heads and the pooler, which a folder for a different task lacks.
bool is_bert_head(const std::string& parameter) {
  return parameter.starts_with("cls.") || parameter.starts_with("classifier.") || parameter.starts_with("bert.pooler.");
}

}  // namespace

const Architecture bert = {.model_type = "bert",
                           .architecture = "BertForMaskedLM",
                           .hf_block = "BertLayer",
                           .read = read_bert,
                           .tensor_name = bert_tensor_name,
                           .family = Family::bert,
                           .task = Task::masked_token,
                           .may_be_new = is_bert_head};
const Architecture bert_classifier = {.model_type = "bert",
                                      .architecture = "BertForSequenceClassification",
                                      .hf_block = "BertLayer",
                                      .read = read_classifier,
                                      .tensor_name = bert_tensor_name,
                                      .family = Family::bert,
                                      .task = Task::row_class,
                                      .may_be_new = is_bert_head};

}  // namespace tessera::architectures
