#pragma once
/// \file
/// architectures/: the structure of transformers, without tensors. One file per family (families/) reads its
/// config.json into a ModelSpec; models/ builds modules from it, plan/ computes memory and time from it.
///
///   spec.h           the values of an architecture (this header)
///   architecture.h   the table of families, and the reader of any config.json
///   reading.h        common functions of the families' readers
///   tensor_names.h   the parameter for a tensor of a Hugging Face folder
///   tensors.h        every parameter: name, shape, and the dimension that tensor parallelism cuts
///   flops.h          arithmetic of a block, of a token, of a pipeline's pieces
///   presets.h        models by name
///
/// Names, defaults and spellings are those of Hugging Face's transformers (models/NAME/configuration_NAME.py, versions
/// 4 and 5).

#include <tessera/architectures/mup.h>
#include <tessera/architectures/rope.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::architectures {

/// The modules that the blocks are built from.
enum class Family : std::uint8_t { gpt2, llama, bert };

/// The activation between the two products of an MLP without a gate (nn/activation.h).
enum class Activation : std::uint8_t { gelu_tanh, gelu_erf, relu, relu_squared, silu };
/// The activation of an MLP's gate (nn/swiglu.h).
enum class Gate : std::uint8_t { silu, gelu_tanh };

/// How a block adds the results of attention and MLP to the residual stream.
enum class Residual : std::uint8_t {
  serial,       ///< the MLP reads the sum after attention
  parallel,     ///< both read the block's input, each through its own norm (GPT-NeoX)
  parallel_one  ///< both read it through the same norm (Cohere)
};

/// The normalization of a norm.
enum class NormKind : std::uint8_t {
  rms,   ///< divides by the root mean square (Zhang & Sennrich 2019)
  layer  ///< subtracts the mean and divides by the standard deviation (Ba et al. 2016)
};

/// The norms of a family, and their positions in a block.
struct NormForm {
  NormKind kind = NormKind::rms;      ///< RMS or layer norm
  bool weight = true;                 ///< false: no weight (OLMo)
  bool bias = false;                  ///< layer norms only
  bool from_one = false;              ///< the factor is 1 + weight (Gemma, Nemotron)
  bool begins_at_zero = false;        ///< initial value of the weights is 0 (Gemma) instead of 1
  double eps = 1e-6;                  ///< added to the mean square, or to the variance
  bool before = true, after = false;  ///< before attention and MLP, or after them
};

/// How the maps before attention, and those of a gated MLP, are stored.
enum class Packing : std::uint8_t {
  none,
  blocks,  ///< one matrix of q, k and v, one of gate and up (Phi-3)
  heads    ///< one matrix that stores q, k and v of each head together (GPT-NeoX)
};

/// The rotation of a layer's queries and keys.
enum class LayerRope : std::uint8_t { usual, local, none };

/// Factors of activations.
struct Multipliers {
  double embedding = 1;  ///< factor of the embeddings
  double residual = 1;   ///< factor of the outputs of attention and MLP
  double logits = 1;     ///< factor of the logits
};

/// Limits of soft-capped scores and logits (nn/softcap.h); 0: none.
struct SoftCaps {
  double scores = 0, logits = 0;  ///< limits of attention scores and of logits
};

/// Dropout rates in training.
struct Drops {
  double embedding = 0, attention = 0, mlp = 0;  ///< embeddings, outputs of attention and MLP
  double classifier = 0;                         ///< input of a classifier (BERT)
};

/// A mixture of experts in place of MLPs; the experts are gated if the model's MLPs are (nn/moe/router.h).
struct Experts {
  enum class Scoring : std::uint8_t { softmax, sigmoid };  ///< how logits become scores
  std::int64_t count = 0, top_k = 0;                       ///< experts per layer; experts per token
  std::int64_t inner = 0;                                  ///< inner width of an expert
  /// inner width of the shared MLP, which processes every token; 0: none
  std::int64_t shared_inner = 0;
  /// the shared MLP is multiplied by sigmoid(shared_expert_gate(x))
  bool shared_gate = false;
  bool selection_bias = false;         ///< gate.e_score_correction_bias [count]
  Scoring scoring = Scoring::softmax;  ///< how a token's logits become scores
  bool softmax_after_top_k = false;    ///< weights are the softmax of the chosen logits
  bool normalize = false;              ///< weights are divided by their sum
  bool sinkhorn = false;               ///< in training, experts are chosen by Sinkhorn's scores (nn/moe/sinkhorn.h)
  /// Number of expert groups; groups that a token may use; experts that determine a group's score.
  std::int64_t groups = 1, top_groups = 1, group_best = 2;
  double scale = 1;                           ///< factor of the weights
  double jitter = 0;                          ///< router_jitter_noise
  double auxiliary = 0;                       ///< coefficient of the balancing loss; 0: none
  const char* shared_name = "shared_expert";  ///< module name of the shared MLP
  const char *gate_name = "gate_proj", *up_name = "up_proj", *down_name = "down_proj";  ///< an expert's matrices
};

/// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1).
struct Latent {
  std::int64_t query_rank = 0, key_rank = 0;       ///< ranks of the latents; query_rank 0: queries have none
  std::int64_t plain = 0, rotated = 0, value = 0;  ///< parts of a head: not rotated, rotated, value
  /// elements of a rotated pair are neighbours; false: in separate halves
  bool interleaved = true;
  bool normed = true;  ///< the latents are normalized by RMS norms
  /// epsilon of those norms; DeepSeek's does not depend on rms_norm_eps
  double norm_eps = 1e-6;
  double scale = 1;  ///< factor of scores
  /// The larger of a head's key and value sizes.
  std::int64_t widest() const { return plain + rotated > value ? plain + rotated : value; }
};

/// Linear attention by the gated delta rule (nn/recurrent/gated_delta.h).
struct Linear {
  /// Heads of q and k, heads of v, and the size of each.
  std::int64_t key_heads = 0, value_heads = 0, key_size = 0, value_size = 0;
  std::int64_t kernel = 0;   ///< tokens in a convolution's kernel
  std::vector<bool> layers;  ///< layers with linear attention; the others have ordinary attention
  std::int64_t keys() const { return key_heads * key_size; }        ///< width of q, and of k
  std::int64_t values() const { return value_heads * value_size; }  ///< width of v
  std::int64_t convolved() const { return 2 * keys() + values(); }  ///< channels of q, k and v
  /// Columns of the packed input map.
  std::int64_t in_features() const { return convolved() + values() + 2 * value_heads; }
};

/// CLIP's vision tower (Radford et al. 2021).
struct Tower {
  std::int64_t layers = 12, hidden = 768, heads = 12, inner = 3072;  ///< layers, width, heads, inner width of an MLP
  std::int64_t side = 224, patch = 32;                               ///< pixels per side of an image, and of a patch
  bool quick_gelu = true;                                            ///< x sigmoid(1.702 x); false: gelu, exact
  /// epsilon of its norms; initial standard deviation
  double eps = 1e-5, initializer_range = 0.02;
  std::int64_t patches() const { return (side / patch) * (side / patch); }  ///< per image
};

/// A frozen tower before a decoder, and a projector to the decoder's width (LLaVA, Liu et al. 2023).
struct Vision : Tower {
  std::int64_t image_token = 32000;              ///< may be >= the vocabulary size: it is never looked up
  std::int64_t blocks = 0;                       ///< layers of the tower that are computed
  bool with_class = false;                       ///< the class token's row is a feature, too
  std::int64_t projections = 2;                  ///< maps of the projector
  bool projector_bias = true;                    ///< biases of the projector's maps
  Activation activation = Activation::gelu_erf;  ///< between the projector's maps
  double projector_range = 0.02;                 ///< the projector's initial weights are N(0, this)
  std::int64_t tokens() const { return patches() + (with_class ? 1 : 0); }  ///< per image, in a row
};

/// Names of modules that may differ from Llama's.
struct DecoderNames {
  /// The decoder, its embedding, its position table, its last norm.
  const char *model = "model", *embedding = "embed_tokens", *positions = "embed_positions", *norm = "norm";
  const char* head = "lm_head";                             ///< the head
  const char *attention = "self_attn", *output = "o_proj";  ///< attention, and its output map
  const char *query_norm = "q_norm", *key_norm = "k_norm";  ///< norms of q and k
  const char* mlp = "mlp";                                  ///< "": its two maps are modules of the block itself (OPT)
  const char *up = "up_proj", *down = "down_proj";          ///< the maps of an MLP without a gate
  const char* before_attention = "input_layernorm";         ///< the norms
  const char* before_mlp = "post_attention_layernorm";      ///< if no norm follows attention
};

/// An architecture: embeddings, blocks, end (last norm, head). Sizes in elements.
struct ModelSpec {
  std::string type;               ///< config.json's model_type; for a vision-language model its decoder's
  Family family = Family::llama;  ///< the modules it is built from
  std::int64_t depths = 0;        ///< multi-token prediction blocks after the last one; per-layer values include them
  /// Blocks, width, heads of q, heads of k and v, size of a head.
  std::int64_t layers = 0, hidden = 0, heads = 0, key_heads = 0, head_size = 0;
  std::int64_t inner = 0;                                  ///< inner width of a dense block's MLP
  std::int64_t vocabulary = 0;                             ///< rows of the embedding
  std::int64_t positions = 0;                              ///< max_position_embeddings
  double initializer_range = 0.02, attention_dropout = 0;  ///< initial standard deviation; dropout rate of scores
  Drops drops;                                             ///< other dropout rates
  double score_scale = 1;                                  ///< factor of q k^T
  bool scale_by_layer = false;                             ///< also divided by the layer's number, from 1 (GPT-2)
  bool query_bias = false;                                 ///< biases of q_proj, k_proj, v_proj
  bool output_bias = false;                                ///< bias of o_proj
  bool mlp_bias = false, head_bias = false;                ///< biases of the MLP's maps, and of the head
  bool gated = true;       ///< MLPs of three matrices, down(a(gate x) * up x); otherwise two, down(a(up x))
  Gate gate = Gate::silu;  ///< activation of a gated MLP
  Activation activation = Activation::gelu_tanh;  ///< activation of an MLP without a gate
  bool causal = true;                             ///< tokens attend only to earlier tokens and themselves
  Residual residual = Residual::serial;           ///< how a block combines its parts
  NormForm norms;                                 ///< norms of blocks, and the last norm
  Multipliers multipliers;                        ///< factors of activations
  SoftCaps caps;                                  ///< limits of scores and logits
  bool head_norm = false;                         ///< norms of each head of q and k (Qwen3)
  bool wide_head_norm = false;                    ///< one norm over all heads instead (OLMoE)
  bool output_gate = false;                       ///< q_proj also produces a gate for each head's output
  double clip_qkv = 0;                            ///< maximum absolute value of q, k and v; 0: none (OLMoE)
  bool tied = false;                              ///< the head is the embedding
  Packing packing = Packing::none;                ///< how maps are stored
  bool interleaved = false;                       ///< the elements of a rotated pair are neighbours (Cohere)
  std::int64_t position_rows = 0;                 ///< rows of a learned position table; 0: rotary positions
  std::int64_t position_offset = 0;               ///< rows of that table before the first position (OPT)
  std::vector<std::int64_t> windows;              ///< per layer: tokens visible to attention; 0: all. Empty: all
  std::vector<LayerRope> rotations;               ///< per layer. Empty: LayerRope::usual for all
  Rope rope;                                      ///< rotation of queries and keys
  std::optional<Rope> local_rope;                 ///< rotation of layers with LayerRope::local
  std::vector<bool> sparse;                       ///< per layer: whether it has experts. Empty: none
  std::optional<Experts> experts;                 ///< nullopt: every MLP is dense
  std::optional<Latent> latent;                   ///< nullopt: ordinary attention
  std::optional<Linear> linear;                   ///< nullopt: no layer has linear attention
  std::optional<Mup> mup;                         ///< maximal update parameterization; nullopt: usual scaling
  std::optional<Vision> vision;                   ///< nullopt: not a vision-language model
  std::int64_t labels = 0;                        ///< BERT: classes of a classifier; 0: predicts masked tokens
  std::int64_t segments = 2, pad_token = 0;       ///< BERT: rows of token_type_embeddings; the padding's id
  DecoderNames names;                             ///< names of its modules

  std::int64_t query_width() const { return heads * head_size; }        ///< columns of q
  std::int64_t key_width() const { return key_heads * head_size; }      ///< columns of k, and of v
  bool parallel() const { return residual != Residual::serial; }        ///< attention and MLP read the same input
  bool one_norm() const { return residual == Residual::parallel_one; }  ///< attention and MLP share a norm
  bool gelu_gate() const { return gated && gate == Gate::gelu_tanh; }   ///< MLPs are gated by gelu
  /// Whether a layer has linear attention.
  bool is_linear(std::int64_t layer) const { return linear && linear->layers[static_cast<std::size_t>(layer)]; }
  /// Whether a layer has experts.
  bool is_sparse(std::int64_t layer) const { return !sparse.empty() && sparse[static_cast<std::size_t>(layer)]; }
  std::int64_t window(std::int64_t layer) const {  ///< tokens visible to a layer's attention; 0: all
    return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)];
  }
  LayerRope rotation(std::int64_t layer) const {  ///< a layer's rotation
    return rotations.empty() ? LayerRope::usual : rotations[static_cast<std::size_t>(layer)];
  }
  double scale_of_scores(std::int64_t layer) const {  ///< factor of a layer's q k^T
    return scale_by_layer ? score_scale / static_cast<double>(layer + 1) : score_scale;
  }
  /// Maximum tokens of a sequence.
  std::int64_t longest_sequence() const { return family == Family::llama ? rope.longest_sequence() : positions; }
  /// Whether a pipeline stage may begin or end inside a block: attention's output is added before the MLP reads the
  /// sum.
  bool blocks_can_be_cut() const { return family != Family::bert && !vision && !parallel(); }
};

}  // namespace tessera::architectures
