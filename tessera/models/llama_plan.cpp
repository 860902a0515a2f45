#include <tessera/models/llama.h>

#include <tessera/base/error.h>

#include <algorithm>

namespace tessera::models {
namespace {

using layout::TensorPlan;
using enum layout::TensorStyle;

void add_plain(TensorPlan& plan, const std::string& module, const std::string& up, const std::string& down) {
  plan.push_back({concat(module, ".", up), colwise});
  plan.push_back({concat(module, ".", down), rowwise});
}

void add_gated(TensorPlan& plan, const std::string& module, const std::string& gate, const std::string& up,
               const std::string& down) {
  plan.push_back({concat(module, ".", gate), colwise});
  add_plain(plan, module, up, down);
}

/// All heads share a part of their keys, so every rank computes all of them: matrices are cut, work is not.
void add_latent_attention(TensorPlan& plan, const LatentConfig& c) {
  const auto gathered = [&](const char* name, bool whole_input) {
    plan.push_back({.pattern = name, .style = colwise_gather_output, .whole_input = whole_input});
  };
  if (c.query_rank == 0) {
    gathered("self_attn.q_proj", false);
  } else {
    gathered("self_attn.q_a_proj", false);
    gathered("self_attn.q_b_proj", true);
    if (c.normed) plan.push_back({"self_attn.q_a_layernorm", replicated});
  }
  gathered("self_attn.kv_a_proj_with_mqa", false);
  gathered("self_attn.kv_b_proj", true);
  if (c.normed) plan.push_back({"self_attn.kv_a_layernorm", replicated});
  plan.push_back({"self_attn.o_proj", rowwise_split_input});
}

/// A memory has been written by all tokens, so every rank has all heads: matrices are cut, work is not.
void add_linear_attention(TensorPlan& plan) {
  plan.push_back({.pattern = "self_attn.in_proj", .style = colwise_gather_output});
  plan.push_back({"self_attn.conv_weight|self_attn.A_log|self_attn.dt_bias|self_attn.norm", replicated});
  plan.push_back({"self_attn.out_proj", rowwise_split_input});
}

void add_attention(TensorPlan& plan, const LlamaConfig& c) {
  const auto linear = [&](bool is) {
    for (std::int64_t i = 0; i < c.layers; ++i)
      if (c.linear_layer(i) == is) return true;
    return false;
  };
  if (linear(true)) add_linear_attention(plan);
  if (!linear(false)) return;
  if (c.latent) return add_latent_attention(plan, *c.latent);
  if (c.packed) {
    plan.push_back(
        {.pattern = "self_attn.qkv_proj", .style = colwise, .block_heads = {c.heads, c.key_heads, c.key_heads}});
    plan.push_back({"self_attn.o_proj", rowwise});
    return;
  }
  if (c.query_key_value) {
    plan.push_back({"attention.query_key_value", colwise, 1, c.heads});
    plan.push_back({"attention.dense", rowwise});
    return;
  }
  const bool wide = c.norm_of_all_heads;  // then every rank needs all heads
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}) {
    const std::int64_t heads = std::string_view(name) == "self_attn.q_proj" ? c.heads : c.key_heads;
    plan.push_back({name, wide ? colwise_gather_output : colwise, 1, wide ? 0 : heads});
  }
  plan.push_back({concat("self_attn.", c.names.output), wide ? rowwise_split_input : rowwise});
  if (!c.query_key_norm) return;
  for (const char* norm : {c.names.query_norm, c.names.key_norm})  // norms of this rank's heads
    plan.push_back({concat("self_attn.", norm), wide ? replicated : replicated_with_grad_allreduce});
}

void add_experts(TensorPlan& plan, const MoeConfig& c, const std::string& module) {
  const auto add = [&](const std::string& mlp) {
    c.gated ? add_gated(plan, mlp, c.gate_name, c.up_name, c.down_name) : add_plain(plan, mlp, c.up_name, c.down_name);
  };
  add("experts.*");
  plan.push_back({concat(module, ".gate.weight"), sequence_parallel});
  if (c.selection_bias) plan.push_back({concat(module, ".gate.e_score_correction_bias"), replicated});
  if (c.shared_intermediate > 0) add(c.shared_name);
  if (c.shared_gate) plan.push_back({"shared_expert_gate", sequence_parallel});
}

}  // namespace

layout::TensorPlan Llama::tensor_plan() const {
  layout::TensorPlan plan;
  add_attention(plan, config_);
  std::int64_t sparse = 0;
  for (std::int64_t i = 0; i < config_.layers; ++i) sparse += config_.sparse(i);
  const LlamaConfig& c = config_;
  const layout::DecoderNames& names = c.names;
  if (c.packed) {
    plan.push_back({.pattern = "mlp.gate_up_proj", .style = colwise, .blocks = 2});
    plan.push_back({"mlp.down_proj", rowwise});
  } else if (!c.gated && sparse < c.layers) {
    const std::string mlp = *names.mlp ? concat(names.mlp, ".") : std::string();
    plan.push_back({mlp + names.up, colwise});
    plan.push_back({mlp + names.down, rowwise});
  } else if (sparse < c.layers) {
    add_gated(plan, names.mlp, "gate_proj", "up_proj", "down_proj");
  }
  if (sparse > 0) add_experts(plan, *c.moe, names.mlp);
  plan.push_back({concat(names.model, ".", names.embedding), embedding_rowwise});
  if (c.norms.weight) {
    const auto norm = [&](const std::string& name) { plan.push_back({name, sequence_parallel}); };
    const bool mlp_norm = c.norms.before && c.residual != Residual::parallel_one;
    if (c.norms.before) norm(names.before_attention);
    if (c.norms.after) norm("post_attention_layernorm");
    if (mlp_norm && !c.norms.after) norm(names.before_mlp);
    if (mlp_norm && c.norms.after) norm("pre_feedforward_layernorm");
    if (c.norms.after) norm("post_feedforward_layernorm");
    // OPT's last norm has the name of one of its blocks', whose pattern it matches.
    if (std::string_view(names.norm) != names.before_mlp) norm(concat(names.model, ".", names.norm));
  }
  if (c.depths > 0) {  // what a depth begins and ends with is whole on every rank
    if (c.norms.weight) plan.push_back({"enorm|hnorm|shared_head.norm", sequence_parallel});
    plan.push_back({"eh_proj", sequence_parallel});
  }
  if (lm_head) plan.push_back({names.head, colwise_gather_output});
  return plan;
}

}  // namespace tessera::models
