#pragma once
/// \file
/// plan/: memory and time of a run before it runs, and the search for the best plan. No tensors: a laptop plans for
/// 100,000 devices.
///
///   model.h       what a model is here: sizes, and every parameter by name (this header)
///   adapters.h    LoRA adapters, and frozen weights in few bits
///   vision.h      what a tower and a projector before the decoder need
///   presets.h     well-known models, and where a model may come from
///   recorded.h    a user's module by what one step of it was seen to do
///   plan.h        the settings that memory and time depend on
///   memory.h      bytes of every pipeline stage, by kind
///   megatron.h    the same of Megatron-LM, which keeps other tensors
///   hardware.h    devices and links
///   costs.h       seconds of products, passes over memory, collectives
///   time.h        seconds of a step
///   search.h      all plans of a cluster, ranked, and why others lose
///   from_config.h from the settings of `tessera train` to a plan
///
/// Names and shapes are those of Hugging Face's transformers (transformers/models/*/modeling_*.py), which are also
/// those of tessera/models; a test of that layer compares the two, so that a plan cannot drift from a run.

#include <tessera/base/value.h>
#include <tessera/layout/decoder_names.h>
#include <tessera/layout/schedule/cut.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::plan {

/// A count in a formula.
inline double real(std::int64_t n) { return static_cast<double>(n); }

/// What a parameter belongs to.
enum class Part : unsigned char { embedding, norm, attention, mlp, router, expert, head, tower, projector };
inline constexpr std::size_t part_count = 9;
std::string_view part_name(Part part);

/// Experts in the place of MLPs (transformers' mixtral, qwen2_moe, qwen3_moe, olmoe, deepseek_v3; megatron_gpt), with
/// gates where the model's MLPs have them.
struct Experts {
  std::int64_t count = 0, top_k = 0;  ///< experts of a layer, and how many of them see a token
  std::int64_t inner = 0;             ///< width between the products of one
  std::int64_t shared_inner = 0;      ///< width of the MLP beside them that every token passes; 0: none
  bool shared_gate = false;           ///< which is multiplied by a gate
  bool selection_bias = false;        ///< e_score_correction_bias
};

/// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1).
struct Latent {
  std::int64_t query_rank = 0, key_rank = 0;       ///< sizes of the latents; query_rank 0: queries have none
  std::int64_t plain = 0, rotated = 0, value = 0;  ///< parts of a head
  bool normed = true;                              ///< the latents pass through norms
  std::int64_t widest() const { return plain + rotated > value ? plain + rotated : value; }
};

/// Linear attention (models/decoders/linear_attention.h).
struct Linear {
  std::int64_t key_heads = 0, value_heads = 0, key_size = 0, value_size = 0, kernel = 0;
  std::vector<bool> layers;  ///< which have it
  std::int64_t values() const { return value_heads * value_size; }
  std::int64_t convolved() const { return 2 * key_heads * key_size + values(); }
  std::int64_t in_features() const { return convolved() + values() + 2 * value_heads; }
};

/// What a model that sees images has before its decoder (models/vision/llava.h): CLIP's tower, which is frozen, and a
/// projector to the decoder's width.
struct Vision {
  std::int64_t layers = 0, hidden = 0, heads = 0, inner = 0;  ///< the tower's
  std::int64_t blocks = 0;                                    ///< so many of its layers are computed
  std::int64_t side = 0, patch = 0;                           ///< pixels of an image's side, and of a patch's
  bool quick_gelu = true;                                     ///< x sigmoid(1.702 x)
  std::int64_t tokens = 0;                                    ///< that an image takes in a row
  std::int64_t projections = 2;                               ///< maps of the projector
  bool projector_bias = true, projector_trained = true;
  std::int64_t patches() const { return (side / patch) * (side / patch); }
};

/// LoRA adapters beside weights that are frozen (adapters.h).
struct Adapters {
  std::int64_t rank = 0;
  std::vector<std::string> targets;  ///< ends of maps' names, or "all-linear"; none: the family's
  std::vector<std::string> whole;    ///< ends of names of modules that are trained whole beside them
  bool dropout = false;              ///< before adapters
  int bits = 0;                      ///< that frozen weights of the blocks' maps take, 4 or 8; 0: they are whole
  bool double_quant = false;         ///< four bits: the scales of blocks take eight bits each
  bool half_products = false;        ///< products with those weights are in bf16 or fp16, whatever the run's are in
};

/// Where a block of the Llama family has norms, and of what parameters.
struct Norms {
  bool before = true, after = false;  ///< attention and the MLP; on what they give
  bool shared = false;                ///< attention and the MLP read the same one (Cohere, Phi)
  bool weight = true, bias = false;
};

/// How the maps before attention, and those of a gated MLP, are stored.
enum class Packing : unsigned char {
  none,
  blocks,  ///< one matrix of q, k and v, one of gate and up (Phi-3)
  heads    ///< one in which each head has its q, k and v beside one another (GPT-NeoX)
};

enum class Family : unsigned char { gpt2, llama, bert };

struct RecordedStep;

/// A transformer: embeddings, blocks, end (last norm, head, loss). Sizes in elements.
struct Model {
  std::string name;  ///< for people: "llama-3-8b", or the file
  std::string type;  ///< config.json's model_type; of a model that sees images its decoder's
  Family family = Family::llama;
  std::int64_t depths = 0;  ///< blocks of multi-token prediction behind the last one; what is per layer has them, too
  bool predicts = true;     ///< depths are computed and trained (--mtp_loss_scaling_factor above 0)
  std::int64_t layers = 0, hidden = 0, heads = 0, key_heads = 0, head_size = 0;
  std::int64_t inner = 0;       ///< width between the products of a dense block's MLP
  std::int64_t vocabulary = 0;  ///< rows of the embedding
  std::int64_t positions = 0;   ///< the longest sequence
  bool gated = true;            ///< MLPs of three matrices (SwiGLU), else of two
  bool gelu_gate = false;       ///< whose gate passes a GELU, an operation apart from the product with `up`
  bool causal = true;
  bool tied = false;  ///< the head is the embedding
  bool query_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
  Norms norms;
  bool parallel = false;  ///< attention and the MLP stand beside one another
  Packing packing = Packing::none;
  std::int64_t position_rows = 0;  ///< OPT: of its learned table of positions; 0: positions are rotated
  layout::DecoderNames names;
  bool head_norm = false;             ///< norms of q and k (Qwen3)
  bool wide_head_norm = false;        ///< over all heads at once (OLMoE)
  bool erf_gelu = false;              ///< the exact GELU, which no kernel of ours fuses
  double dropout = 0;                 ///< what residual branches drop
  std::vector<std::int64_t> windows;  ///< per layer: tokens that attention sees; 0: all. Empty: all, everywhere
  std::vector<bool> sparse;           ///< per layer: experts. Empty: none
  std::optional<Experts> experts;
  std::optional<Latent> latent;
  std::optional<Linear> linear;
  std::optional<Vision> vision;
  std::optional<Adapters> adapters;
  bool trained = true;        ///< false: the decoder is frozen, and trains the projector before it
  bool output_gate = false;   ///< q_proj gives a gate of what each head reads, too
  std::int64_t labels = 0;    ///< BERT: classes of a classification head; 0: masked tokens are guessed
  std::int64_t segments = 2;  ///< BERT: rows of token_type_embeddings
  std::shared_ptr<const RecordedStep> recorded;  ///< a user's module (recorded.h): what it does instead of formulas

  /// Neither tensor nor context parallelism cut it: nobody has said what they would cut, or it sees images.
  bool has_no_cuts() const { return recorded || vision; }
  /// The weights of the blocks' maps have gradients.
  bool maps_trained() const { return trained && !adapters; }
  /// The matrix of logits has one.
  bool head_trained() const;
  bool table_trained() const;  ///< that of embeddings
  std::int64_t computed_depths() const { return predicts ? depths : 0; }
  /// The end of the model reads the table of embeddings, too, as its head or for its depths.
  bool table_at_end() const { return tied || computed_depths() > 0; }
  std::int64_t query_width() const { return heads * head_size; }
  std::int64_t key_width() const { return key_heads * head_size; }
  bool is_linear(std::int64_t layer) const { return linear && linear->layers[static_cast<std::size_t>(layer)]; }
  bool is_sparse(std::int64_t layer) const { return !sparse.empty() && sparse[static_cast<std::size_t>(layer)]; }
};

/// Reads the config.json of any model that tessera/models has. Throws InputError "file:line:column: ..." for a missing
/// key, a value out of range, heads that do not divide, and another model_type (with those there are).
Model read_model(const Value& config);

/// A parameter.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Part part = Part::mlp;
  std::int64_t block = -1;   ///< -1: embeddings; `layers`: the end
  std::int64_t expert = -1;  ///< -1: of no expert
  int cut = -1;              ///< the dimension that tensor parallelism divides; -1: every rank has all of it
  std::int64_t heads = 0;    ///< > 0: divided between so many heads, which ranks share when there are fewer
  bool trained = true;
  double packed_bytes = 0;  ///< > 0: frozen and kept in so many bytes, whole on every rank; no parameter of the module
  std::vector<std::int64_t> block_heads = {};  ///< several such matrices on one another, heads of the same size

  double numel() const;
};
/// All of them, a tied head once, in the order of the modules.
std::vector<Tensor> tensors(const Model& model);
/// How many elements of the tensor the fullest of `tp` ranks holds.
double elements_on_rank(const Tensor& tensor, int tp);

/// Elements: all, and those that one token meets (of experts only top_k, of the embeddings none but a tied head).
double parameter_count(const Model& model);
double active_parameters(const Model& model);

/// Elements that a depth of multi-token prediction has besides its block: a map of two widths to one, three norms.
double depth_end_elements(const Model& model);

/// Matrix elements of a layer that a token meets: attention's, and those of the MLP or of the experts that it goes to.
struct LayerMatrices {
  double attention = 0, mlp = 0;
  double all() const { return attention + mlp; }
};
LayerMatrices matrices_of_layer(const Model& model, std::int64_t layer);
/// Numbers that scores and what they mix are made of, per token and token seen, on one of `tp` ranks: the mean of the
/// two, since in latent attention scores are as wide as queries, what they mix as values. Of latent attention every
/// rank computes all heads.
double score_width(const Model& model, int tp = 1);
/// A layer's forward pass, per token of a row of so many.
layout::schedule::BlockFlops block_flops(const Model& model, std::int64_t layer, double row_tokens);

/// The model's own arithmetic in FLOP for one token of a sequence of so many, forward and backward: 6 per matrix
/// element that it meets, and 12 per number of q and token seen (Kaplan et al. 2020; PaLM, Chowdhery et al. 2022,
/// appendix B). No recomputation. Causal attention counts in full, as the usual MFU does; `half`: as it is computed.
/// Beside adapters 4 per element of a frozen matrix, and 6 per element of the adapters.
double model_flops_per_token(const Model& model, double sequence, bool half = false);

}  // namespace tessera::plan
