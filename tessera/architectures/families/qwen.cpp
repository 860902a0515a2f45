// Qwen2 and Qwen3, dense and with experts (Qwen Team 2024, 2025;
// transformers/models/{qwen2,qwen3,qwen2_moe,qwen3_moe}).

#include <tessera/architectures/reading.h>

#include <algorithm>

namespace tessera::architectures {
namespace {

/// Reads which layers have windows. With use_sliding_window these are the layers from max_window_layers on (in
/// Qwen2-MoE every second layer before it), unless layer_types defines them.
void read_windows(const Value& json, ModelSpec& s, bool every_second) {
  if (!given(json, "sliding_window") || !flag(json, "use_sliding_window", false)) return;
  const std::int64_t window = positive(json, "sliding_window");
  if (const Value* types = given(json, "layer_types")) {
    s.windows = windows_of(*types, s.layers, window);
    return;
  }
  const Value* first = given(json, "max_window_layers");
  const std::int64_t limit = first ? first->as_int() : 28;
  for (std::int64_t i = 0; i < s.layers; ++i)
    s.windows.push_back((every_second ? i % 2 == 0 && i < limit : i >= limit) ? window : 0);
}

void read_dense(const Value& json, ModelSpec& s) {
  const bool third = s.type == "qwen3";
  read_sizes(json, s, {.head_size = third ? 128 : 0});
  refuse_other(json, "hidden_act", {"silu"});
  s.output_bias = third && flag(json, "attention_bias", false);
  s.query_bias = !third || s.output_bias;
  s.head_norm = third;
  read_windows(json, s, false);
  refuse_slices(json);
  s.rope = parse_rope(json, s.head_size, s.positions);
}

/// Reads which layers have experts, the experts, and the dense width of the others.
void read_mixture(const Value& json, ModelSpec& s, const ExpertDefaults& defaults, std::int64_t inner) {
  refuse_other(json, "hidden_act", {"silu"});
  refuse_slices(json);
  s.rope = parse_rope(json, s.head_size, s.positions);
  s.sparse = sparse_layers(json, s.layers);
  s.experts = read_experts(json, s, defaults);
  s.experts->inner = positive_or(json, "moe_intermediate_size", inner);
}

/// transformers 5 stores Qwen3's number of experts as num_local_experts.
const char* count_key(const Value& json) { return given(json, "num_experts") ? "num_experts" : "num_local_experts"; }

void read_qwen2_moe(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  s.query_bias = flag(json, "qkv_bias", true);
  read_windows(json, s, true);
  read_mixture(json, s, {.count_key = count_key(json), .count = 60, .top_k = 4}, 1408);
  s.experts->shared_inner = positive_or(json, "shared_expert_intermediate_size", 5632);
  s.experts->shared_gate = true;
}

/// Reads Qwen3-MoE, whose layers all have the same window.
void read_qwen3_moe(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.key_heads = 4});
  s.query_bias = s.output_bias = flag(json, "attention_bias", false);
  s.head_norm = true;
  if (flag(json, "use_sliding_window", false)) read_one_window(json, s);
  read_mixture(json, s, {.count_key = count_key(json), .count = 128, .top_k = 8}, 768);
}

}  // namespace

const Architecture qwen2 = {.model_type = "qwen2",
                            .architecture = "Qwen2ForCausalLM",
                            .hf_block = "Qwen2DecoderLayer",
                            .read = read_dense,
                            .tensor_name = llama_tensor_name,
                            .predicts = true,
                            .preset = R"({"use_sliding_window": false})"};
const Architecture qwen3 = {.model_type = "qwen3",
                            .architecture = "Qwen3ForCausalLM",
                            .hf_block = "Qwen3DecoderLayer",
                            .read = read_dense,
                            .tensor_name = llama_tensor_name,
                            .predicts = true,
                            .preset = R"({"attention_bias": false, "use_sliding_window": false})"};
const Architecture qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .hf_block = "Qwen2MoeDecoderLayer",
    .read = read_qwen2_moe,
    .tensor_name = llama_tensor_name,
    .predicts = true,
    .preset = R"({"decoder_sparse_step": 1, "mlp_only_layers": null, "moe_intermediate_size": 172,
                  "norm_topk_prob": true, "num_experts": 4, "num_experts_per_tok": 2, "qkv_bias": true,
                  "shared_expert_intermediate_size": 172, "use_sliding_window": false})"};
const Architecture qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .hf_block = "Qwen3MoeDecoderLayer",
    .read = read_qwen3_moe,
    .tensor_name = llama_tensor_name,
    .predicts = true,
    .preset = R"({"attention_bias": false, "decoder_sparse_step": 1, "mlp_only_layers": null,
                  "moe_intermediate_size": 172, "norm_topk_prob": true, "num_experts": 4, "num_experts_per_tok": 2,
                  "use_sliding_window": false})"};

}  // namespace tessera::architectures
