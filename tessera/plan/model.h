#pragma once
/// \file
/// plan/: predicts memory and time of a run, and searches for the best plan. It creates no tensors, so a laptop can
/// plan for 100,000 devices.
///
///   model.h       an architecture, and the choices of a run that affect memory and time (this header)
///   adapters.h    LoRA adapters, and quantized frozen weights
///   vision.h      costs of a vision tower and a projector
///   presets.h     sources of a model
///   recorded.h    a user's module, from one recorded step
///   plan.h        the settings that affect memory and time
///   engine.h      the training program, by year
///   memory.h      bytes of every pipeline stage, by kind
///   megatron.h    the same for Megatron-LM, which keeps different tensors
///   hardware.h    devices and links
///   costs.h       seconds of products, passes over memory, collectives
///   time.h        seconds of a step
///   search.h      all plans of a cluster, ranked, and why others are worse
///   sure.h        accuracy of a prediction, and the choice among equal plans
///   from_config.h converts the settings of `tessera train` to a plan
///
/// architectures/ defines architectures (sizes, parameters, arithmetic) for both trainer and planner.

#include <tessera/architectures/flops.h>
#include <tessera/architectures/tensors.h>
#include <tessera/base/value.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::plan {

using architectures::block_flops, architectures::elements_on_rank, architectures::LayerMatrices,
    architectures::matrices_of_layer, architectures::part_count, architectures::part_name, architectures::reach_of,
    architectures::score_width;
using architectures::Experts, architectures::Family, architectures::Gate, architectures::Latent, architectures::Packing,
    architectures::Part, architectures::Tensor, architectures::Vision;

/// Converts a count for use in formulas.
inline double real(std::int64_t n) { return static_cast<double>(n); }

/// LoRA adapters on frozen weights (adapters.h).
struct Adapters {
  std::int64_t rank = 0;
  std::vector<std::string> targets;  ///< suffixes of map names, or "all-linear"; empty: the family's default
  std::vector<std::string> whole;    ///< name suffixes of modules that are trained in full
  bool dropout = false;              ///< dropout before the adapters
  int bits = 0;                      ///< bits per frozen weight of the blocks' maps, 4 or 8; 0: not quantized
  bool double_quant = false;         ///< 4 bits: the block scales are quantized to 8 bits
  bool half_products = false;        ///< products with those weights are in bf16 or fp16, regardless of the run's type
};

struct RecordedStep;

/// An architecture, and how a run uses it.
struct Model : architectures::ModelSpec {
  std::string name;      ///< for users: "llama-3-8b", or the file
  bool predicts = true;  ///< depths are computed and trained (--mtp_loss_scaling_factor above 0)
  std::optional<Adapters> adapters;
  /// false: the decoder is frozen, and only the projector before it is trained
  bool trained = true;
  bool projector_trained = true;                 ///< vision-language models: whether the projector is trained
  std::shared_ptr<const RecordedStep> recorded;  ///< a user's module (recorded.h): measurements replace formulas

  /// Neither tensor nor context parallelism can cut the model: the cuts are unknown, or it is a vision-language model.
  bool has_no_cuts() const { return recorded || vision; }
  /// The weights of the blocks' maps are trained.
  bool maps_trained() const { return trained && !adapters; }
  /// The matrix of logits is trained.
  bool head_trained() const;
  bool table_trained() const;  ///< the embedding table is trained
  std::int64_t computed_depths() const { return predicts ? depths : 0; }
  /// The end of the model also uses the embedding table, as its head or for its depths.
  bool table_at_end() const { return tied || computed_depths() > 0; }
};

/// Reads the config.json of any family (architectures::read_model).
Model read_model(const Value& config);

/// All parameters, including adapters, a tied head once, in the order of the modules.
std::vector<Tensor> tensors(const Model& model);

/// Elements in total, and elements that one token uses (only top_k of the experts, and the embeddings only as a tied
/// head).
double parameter_count(const Model& model);
double active_parameters(const Model& model);

/// Elements of a multi-token prediction depth outside its block: a map from two widths to one, three norms.
double depth_end_elements(const Model& model);

/// The model's FLOP for one token of a sequence of `sequence` tokens, forward and backward: 6 per matrix element that
/// the token uses, and 12 per element of q and visible token (Kaplan et al. 2020; PaLM, Chowdhery et al. 2022, appendix
/// B). Recomputation is not included. Causal attention counts in full, as is usual for MFU; `half` counts only the
/// visible half. With adapters: 4 per element of a frozen matrix, and 6 per element of the adapters.
double model_flops_per_token(const Model& model, double sequence, bool half = false);

}  // namespace tessera::plan
