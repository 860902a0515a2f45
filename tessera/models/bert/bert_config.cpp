#include <tessera/models/bert/bert_config.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

#include <string>

namespace tessera::models {
using config::flag, config::given, config::positive, config::positive_or, config::positive_real, config::probability,
    config::require_object;
namespace {

void refuse_if_set(const Value& json, const char* key) {
  if (flag(json, key, false))
    throw InputError(concat(json.at(key).where().str(), ": ", key, " is not supported: BERT is an encoder here"));
}

}  // namespace

BertConfig parse_bert_config(const Value& json) {
  require_object(json);
  BertConfig c;
  c.vocab_size = positive(json, "vocab_size");
  c.hidden_size = positive(json, "hidden_size");
  c.num_hidden_layers = positive(json, "num_hidden_layers");
  c.num_attention_heads = positive(json, "num_attention_heads");
  c.max_position_embeddings = positive(json, "max_position_embeddings");
  c.intermediate_size = positive_or(json, "intermediate_size", 4 * c.hidden_size);
  c.type_vocab_size = positive_or(json, "type_vocab_size", 2);
  if (const Value* pad = given(json, "pad_token_id")) {
    c.pad_token_id = pad->as_int();
    if (c.pad_token_id < 0 || c.pad_token_id >= c.vocab_size)
      throw InputError(
          concat(pad->where().str(), ": pad_token_id ", c.pad_token_id, " is outside [0, ", c.vocab_size, ")"));
  }
  c.activation = read_activation(json, "hidden_act", Activation::gelu_erf);
  c.hidden_dropout = probability(json, "hidden_dropout_prob", 0.1);
  c.attention_dropout = probability(json, "attention_probs_dropout_prob", 0.1);
  c.classifier_dropout = probability(json, "classifier_dropout", c.hidden_dropout);
  c.layer_norm_eps = positive_real(json, "layer_norm_eps", 1e-12);
  if (flag(json, "use_mup", false))
    throw InputError(concat(json.at("use_mup").where().str(), ": use_mup is for decoders; leave it out"));
  c.initializer_range = positive_real(json, "initializer_range", 0.02);
  c.tie_word_embeddings = flag(json, "tie_word_embeddings", true);
  c.num_labels = positive_or(json, "num_labels", 2);
  if (const Value* labels = given(json, "id2label")) c.num_labels = static_cast<std::int64_t>(labels->members().size());
  if (c.num_labels < 1) throw InputError(concat(json.at("id2label").where().str(), ": id2label is empty"));
  if (c.hidden_size % c.num_attention_heads != 0)
    throw InputError(concat(json.at("hidden_size").where().str(), ": hidden_size ", c.hidden_size,
                            " is not a multiple of num_attention_heads ", c.num_attention_heads));
  refuse_if_set(json, "is_decoder");
  refuse_if_set(json, "add_cross_attention");
  if (const Value* kind = given(json, "position_embedding_type"); kind && kind->as_string() != "absolute")
    throw InputError(concat(kind->where().str(), ": position_embedding_type \"", kind->as_string(),
                            "\" is not supported; supported: absolute"));
  return c;
}

}  // namespace tessera::models
