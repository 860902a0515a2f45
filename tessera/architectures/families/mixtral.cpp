// Mixtral (Jiang et al. 2024; transformers/models/mixtral): experts in all layers, one window for all of them.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_mixtral(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.key_heads = 8});
  refuse_other(json, "hidden_act", {"silu"});
  read_one_window(json, s);
  refuse_slices(json);
  s.rope = parse_rope(json, s.head_size, s.positions);
  if (!given(json, "rope_theta") && !given(json, "rope_parameters")) s.rope.theta = 1e6;  // MixtralConfig's default
  s.names.mlp = "block_sparse_moe";
  s.sparse.assign(static_cast<std::size_t>(s.layers), true);
  s.experts = read_experts(json, s, {.count_key = "num_local_experts", .count = 8, .top_k = 2});
  s.experts->normalize = true;
  s.experts->jitter = probability(json, "router_jitter_noise", 0);
  s.experts->gate_name = "w1";
  s.experts->up_name = "w3";
  s.experts->down_name = "w2";
}

}  // namespace

const Architecture mixtral = {.model_type = "mixtral",
                              .architecture = "MixtralForCausalLM",
                              .hf_block = "MixtralDecoderLayer",
                              .read = read_mixtral,
                              .tensor_name = llama_tensor_name,
                              .predicts = true,
                              .preset = R"({"intermediate_size": 172, "num_experts_per_tok": 2, "num_local_experts": 4,
                  "router_jitter_noise": 0.0, "sliding_window": null})"};

}  // namespace tessera::architectures
