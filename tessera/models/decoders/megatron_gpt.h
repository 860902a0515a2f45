#pragma once
/// \file
/// The GPT that Megatron-LM puts together from switches (megatron/training/arguments.py), for mixtures that no family
/// of transformers has: experts without gates, RMS norms beside learned positions, gated MLPs with dropout of hidden
/// states. A config.json of model_type "megatron_gpt" is Tessera's own: transformers cannot read it.

#include <tessera/models/llama_config.h>

namespace tessera::models {

/// Members, beside those that read_sizes() reads (where they are not said the defaults are Megatron's):
///   position_embedding_type   "learned_absolute", or "rope" with rope_theta, rope_scaling, partial_rotary_factor
///   normalization             "LayerNorm" or "RMSNorm"; norm_epsilon; layernorm_zero_centered_gamma: factor 1 + weight
///   hidden_act                of an MLP without a gate (activation.h); gated_linear_unit: silu(gate x) * (up x)
///   add_bias_linear           all linear maps of blocks have biases; add_qkv_bias: only those of q, k and v
///   qk_layernorm              norms of the heads of q and k, or of the latents
///   kv_lora_rank (null: none) multi-head latent attention, without biases but for that of what it gives; q_lora_rank
///                             (null: queries have no latent), qk_nope_head_dim, qk_rope_head_dim, v_head_dim: a part
///                             of each head is rotated, by rope_theta and rope_scaling, beside learned positions, too
///   layer_types (null: all    "linear_attention": the gated delta rule (linear_attention.h) with linear_num_key_heads,
///   "full_attention")         linear_num_value_heads, linear_key_head_dim, linear_value_head_dim,
///                             linear_conv_kernel_dim; no biases
///   attn_output_gate          what a head of full attention reads is multiplied by the sigmoid of a gate
///   attention_dropout, hidden_dropout (embeddings, what attention and the MLP give), tie_word_embeddings
///   num_experts (null: none)  num_experts_per_tok, moe_intermediate_size, mlp_only_layers, decoder_sparse_step,
///                             shared_expert_intermediate_size (null: none), shared_expert_gate, router_jitter_noise
///   router_scoring            "softmax_of_chosen" (softmax of the chosen logits), "softmax" (the chosen ones of a
///                             softmax over all), "sigmoid"; norm_topk_prob: weights add up to 1;
///                             routed_scaling_factor; n_group, topk_group: of groups of experts, each as good as the
///                             sum of its num_experts_per_tok / topk_group best; router_selection_bias: a bias of the
///                             choice, as DeepSeek-V3 has
///   router_balancing          "sinkhorn", or null: chosen by the scores
///   mtp_num_layers (0)        blocks that predict further tokens (prediction.h), where positions are rotated
/// Throws InputError as parse_llama_config does.
LlamaConfig parse_megatron_gpt_config(const Value& json);

}  // namespace tessera::models
