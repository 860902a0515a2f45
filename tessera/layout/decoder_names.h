#pragma once
/// \file
/// What the families of decoders call their modules, for the models and for the planner of their memory.

namespace tessera::layout {

/// The names of modules, where they are not Llama's.
struct DecoderNames {
  const char *model = "model", *embedding = "embed_tokens", *positions = "embed_positions", *norm = "norm";
  const char* head = "lm_head";
  const char *attention = "self_attn", *output = "o_proj";
  const char *query_norm = "q_norm", *key_norm = "k_norm";  ///< norms of q and k
  const char* mlp = "mlp";                                  ///< "": its two maps stand in the block itself (OPT)
  const char *up = "up_proj", *down = "down_proj";          ///< the two of an MLP without a gate
  const char* before_attention = "input_layernorm";         ///< the norms
  const char* before_mlp = "post_attention_layernorm";      ///< where none stands behind attention
};

inline constexpr DecoderNames gpt_neox_names = {.model = "gpt_neox",
                                                .embedding = "embed_in",
                                                .norm = "final_layer_norm",
                                                .head = "embed_out",
                                                .attention = "attention",
                                                .output = "dense",
                                                .up = "dense_h_to_4h",
                                                .down = "dense_4h_to_h"};
inline constexpr DecoderNames mixtral_names = {.mlp = "block_sparse_moe"};
inline constexpr DecoderNames starcoder2_names = {.up = "c_fc", .down = "c_proj"};
inline constexpr DecoderNames phi_names = {.norm = "final_layernorm",
                                           .output = "dense",
                                           .query_norm = "q_layernorm",
                                           .key_norm = "k_layernorm",
                                           .up = "fc1",
                                           .down = "fc2"};
inline constexpr DecoderNames opt_names = {.model = "model.decoder",
                                           .norm = "final_layer_norm",
                                           .output = "out_proj",
                                           .mlp = "",
                                           .up = "fc1",
                                           .down = "fc2",
                                           .before_attention = "self_attn_layer_norm",
                                           .before_mlp = "final_layer_norm"};

}  // namespace tessera::layout
