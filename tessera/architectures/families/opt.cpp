// OPT (Zhang et al. 2022; transformers/models/opt): learned positions, layer norms, ReLU, biases.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

/// OPT-350m's different embedding width, and its norms after the residual sums, are refused. `embedding_dropout` is a
/// member of ours, for models trained from scratch: transformers applies no dropout to embeddings.
void read_opt(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.inner_key = "ffn_dim", .tied = true});
  if (positive_or(json, "word_embed_proj_dim", s.hidden) != s.hidden)
    throw InputError(concat(json.at("word_embed_proj_dim").where().str(), ": word_embed_proj_dim is not hidden_size ",
                            s.hidden, ": a different embedding width (as in OPT-350m) is not supported"));
  if (!flag(json, "do_layer_norm_before", true))
    throw InputError(concat(json.at("do_layer_norm_before").where().str(),
                            ": do_layer_norm_before false (norms after the residual sums, as in OPT-350m) is not "
                            "supported"));
  refuse_flag(json, "_remove_final_layer_norm", " is not supported: the decoder always ends with a norm");
  const bool affine = flag(json, "layer_norm_elementwise_affine", true);
  s.norms = {.kind = NormKind::layer, .weight = affine, .bias = affine, .eps = 1e-5};
  s.gated = false;
  s.activation = read_activation(json, "activation_function", Activation::relu);
  s.query_bias = s.output_bias = s.mlp_bias = flag(json, "enable_bias", true);
  s.drops.attention = s.drops.mlp = probability(json, "dropout", 0.1);
  s.drops.embedding = probability(json, "embedding_dropout", 0);
  s.initializer_range = positive_real(json, "init_std", 0.02);
  s.names = {.model = "model.decoder",
             .norm = "final_layer_norm",
             .output = "out_proj",
             .mlp = "",
             .up = "fc1",
             .down = "fc2",
             .before_attention = "self_attn_layer_norm",
             .before_mlp = "final_layer_norm"};
  s.position_offset = 2;
  s.position_rows = s.positions + s.position_offset;
  s.rotations.assign(static_cast<std::size_t>(s.layers), LayerRope::none);
  s.rope = {.dim = s.head_size, .max_positions = s.positions};
}

/// The published files omit "model.".
std::string opt_tensor_name(const std::string& name, const Value& config) {
  if (name == "lm_head.weight") return flag(config, "tie_word_embeddings", true) ? std::string() : name;
  return name.starts_with("decoder.") ? "model." + name : name;
}

}  // namespace

const Architecture opt = {.model_type = "opt",
                          .architecture = "OPTForCausalLM",
                          .hf_block = "OPTDecoderLayer",
                          .read = read_opt,
                          .tensor_name = opt_tensor_name,
                          .preset = R"({
  "activation_function": "relu", "attention_dropout": 0.0, "bos_token_id": 8191, "do_layer_norm_before": true,
  "dropout": 0.0, "embedding_dropout": 0.0, "enable_bias": true, "eos_token_id": 8191, "ffn_dim": 1024,
  "hidden_size": 256, "init_std": 0.02, "layer_norm_elementwise_affine": true, "max_position_embeddings": 1024,
  "num_attention_heads": 4, "num_hidden_layers": 4, "pad_token_id": null, "tie_word_embeddings": true,
  "torch_dtype": "float32", "use_cache": true, "vocab_size": 8192, "word_embed_proj_dim": null})"};

}  // namespace tessera::architectures
