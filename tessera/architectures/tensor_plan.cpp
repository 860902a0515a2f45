#include <tessera/architectures/tensors.h>

#include <tessera/base/error.h>

#include <string>
#include <string_view>

namespace tessera::architectures {
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

/// All heads share a part of their keys, so every rank computes all heads: matrices are cut, work is not.
void add_latent_attention(TensorPlan& plan, const Latent& c) {
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

/// The state depends on all tokens, so every rank has all heads: matrices are cut, work is not.
void add_linear_attention(TensorPlan& plan) {
  plan.push_back({.pattern = "self_attn.in_proj", .style = colwise_gather_output});
  plan.push_back({"self_attn.conv_weight|self_attn.A_log|self_attn.dt_bias|self_attn.norm", replicated});
  plan.push_back({"self_attn.out_proj", rowwise_split_input});
}

void add_attention(TensorPlan& plan, const ModelSpec& c) {
  const auto linear = [&](bool is) {
    for (std::int64_t i = 0; i < c.layers; ++i)
      if (c.is_linear(i) == is) return true;
    return false;
  };
  if (linear(true)) add_linear_attention(plan);
  if (!linear(false)) return;
  if (c.latent) return add_latent_attention(plan, *c.latent);
  if (c.packing == Packing::blocks) {
    plan.push_back(
        {.pattern = "self_attn.qkv_proj", .style = colwise, .block_heads = {c.heads, c.key_heads, c.key_heads}});
    plan.push_back({"self_attn.o_proj", rowwise});
    return;
  }
  if (c.packing == Packing::heads) {
    plan.push_back({"attention.query_key_value", colwise, 1, c.heads});
    plan.push_back({"attention.dense", rowwise});
    return;
  }
  const bool wide = c.wide_head_norm;  // every rank needs all heads
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}) {
    const std::int64_t heads = std::string_view(name) == "self_attn.q_proj" ? c.heads : c.key_heads;
    plan.push_back({name, wide ? colwise_gather_output : colwise, 1, wide ? 0 : heads});
  }
  plan.push_back({concat("self_attn.", c.names.output), wide ? rowwise_split_input : rowwise});
  if (!c.head_norm) return;
  for (const char* norm : {c.names.query_norm, c.names.key_norm})  // norms of this rank's heads
    plan.push_back({concat("self_attn.", norm), wide ? replicated : replicated_with_grad_allreduce});
}

void add_experts(TensorPlan& plan, const ModelSpec& spec) {
  const Experts& e = *spec.experts;
  const auto add = [&](const std::string& mlp) {
    spec.gated ? add_gated(plan, mlp, e.gate_name, e.up_name, e.down_name)
               : add_plain(plan, mlp, e.up_name, e.down_name);
  };
  const std::string gate = concat(spec.names.mlp, ".gate.");
  add("experts.*");
  plan.push_back({gate + "weight", sequence_parallel});
  if (e.selection_bias) plan.push_back({gate + "e_score_correction_bias", replicated});
  if (e.shared_inner > 0) add(e.shared_name);
  if (e.shared_gate) plan.push_back({"shared_expert_gate", sequence_parallel});
}

void add_mlps(TensorPlan& plan, const ModelSpec& c) {
  std::int64_t sparse = 0;
  for (std::int64_t i = 0; i < c.layers; ++i) sparse += c.is_sparse(i);
  if (c.packing == Packing::blocks) {
    plan.push_back({.pattern = "mlp.gate_up_proj", .style = colwise, .blocks = 2});
    plan.push_back({"mlp.down_proj", rowwise});
  } else if (!c.gated && sparse < c.layers) {
    const std::string mlp = *c.names.mlp ? concat(c.names.mlp, ".") : std::string();
    plan.push_back({mlp + c.names.up, colwise});
    plan.push_back({mlp + c.names.down, rowwise});
  } else if (sparse < c.layers) {
    add_gated(plan, c.names.mlp, "gate_proj", "up_proj", "down_proj");
  }
  if (sparse > 0) add_experts(plan, c);
}

void add_norms(TensorPlan& plan, const ModelSpec& c) {
  if (!c.norms.weight) return;
  const DecoderNames& names = c.names;
  const auto norm = [&](const std::string& name) { plan.push_back({name, sequence_parallel}); };
  const bool mlp_norm = c.norms.before && !c.one_norm();
  if (c.norms.before) norm(names.before_attention);
  if (c.norms.after) norm("post_attention_layernorm");
  if (mlp_norm && !c.norms.after) norm(names.before_mlp);
  if (mlp_norm && c.norms.after) norm("pre_feedforward_layernorm");
  if (c.norms.after) norm("post_feedforward_layernorm");
  // OPT's last norm has the same name as one of its blocks' norms, whose pattern matches it.
  if (std::string_view(names.norm) != names.before_mlp) norm(concat(names.model, ".", names.norm));
  if (c.depths > 0) norm("enorm|hnorm|shared_head.norm");
}

TensorPlan llama_plan(const ModelSpec& c) {
  TensorPlan plan;
  add_attention(plan, c);
  add_mlps(plan, c);
  plan.push_back({concat(c.names.model, ".", c.names.embedding), embedding_rowwise});
  add_norms(plan, c);
  if (c.depths > 0) plan.push_back({"eh_proj", sequence_parallel});  // whole on every rank
  if (!c.tied) plan.push_back({c.names.head, colwise_gather_output});
  return plan;
}

TensorPlan gpt2_plan(const ModelSpec& c) {
  TensorPlan plan = {
      {.pattern = "attn.c_attn", .style = colwise, .blocks = 3, .heads = c.heads, .transposed = true},
      {.pattern = "attn.c_proj", .style = rowwise, .transposed = true},
      {.pattern = "mlp.c_fc", .style = colwise, .transposed = true},
      {.pattern = "mlp.c_proj", .style = rowwise, .transposed = true},
      {"transformer.wte", embedding_rowwise},
      {"ln_1", sequence_parallel},
      {"ln_2", sequence_parallel},
      {"ln_f", sequence_parallel},
  };
  if (!c.tied) plan.push_back({"lm_head", colwise_gather_output});
  return plan;
}

TensorPlan bert_plan(const ModelSpec& c) {
  TensorPlan plan = {
      {"attention.self.query", colwise, 1, c.heads},
      {"attention.self.key", colwise, 1, c.heads},
      {"attention.self.value", colwise, 1, c.heads},
      {"attention.output.dense", rowwise},
      {"attention.output.LayerNorm", sequence_parallel},
      {"intermediate.dense", colwise},
      {"layer.*.output.dense", rowwise},
      {"layer.*.output.LayerNorm", sequence_parallel},
      {.pattern = "embeddings.word_embeddings", .style = embedding_rowwise, .whole_input = true},
  };
  if (c.labels > 0) return plan;
  if (!c.tied) plan.push_back({.pattern = "predictions.decoder", .style = colwise_gather_output, .whole_input = true});
  plan.push_back({"cls.predictions.bias", colwise_gather_output});
  return plan;
}

}  // namespace

TensorPlan tensor_plan(const ModelSpec& spec) {
  if (spec.vision)
    throw InputError(
        "tensor parallelism is not supported for vision-language models: use --tp_size 1; --strategy zero3 or "
        "full_shard shards their memory");
  if (spec.family == Family::gpt2) return gpt2_plan(spec);
  return spec.family == Family::bert ? bert_plan(spec) : llama_plan(spec);
}

}  // namespace tessera::architectures
