#pragma once
/// \file
/// plan/: memory and time of a run before it runs, and the search for the best plan. No tensors: a laptop plans for
/// 100,000 devices.
///
///   model.h       an architecture, and the choices of a run that memory and time depend on (this header)
///   adapters.h    LoRA adapters, and frozen weights in few bits
///   vision.h      what a tower and a projector before the decoder need
///   presets.h     where a model may come from
///   recorded.h    a user's module by what one step of it was seen to do
///   plan.h        the settings that memory and time depend on
///   engine.h      whose program trains, and of when
///   memory.h      bytes of every pipeline stage, by kind
///   megatron.h    the same of Megatron-LM, which keeps other tensors
///   hardware.h    devices and links
///   costs.h       seconds of products, passes over memory, collectives
///   time.h        seconds of a step
///   search.h      all plans of a cluster, ranked, and why others lose
///   sure.h        how sure a prediction is, and which of equal plans is taken
///   from_config.h from the settings of `tessera train` to a plan
///
/// What an architecture is (sizes, parameters, arithmetic) architectures/ says, to the trainer as to the planner.

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

/// A count in a formula.
inline double real(std::int64_t n) { return static_cast<double>(n); }

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

struct RecordedStep;

/// An architecture, and what a run makes of it.
struct Model : architectures::ModelSpec {
  std::string name;      ///< for people: "llama-3-8b", or the file
  bool predicts = true;  ///< depths are computed and trained (--mtp_loss_scaling_factor above 0)
  std::optional<Adapters> adapters;
  bool trained = true;                           ///< false: the decoder is frozen, and trains the projector before it
  bool projector_trained = true;                 ///< that of a model that sees images
  std::shared_ptr<const RecordedStep> recorded;  ///< a user's module (recorded.h): its measurements instead of formulas

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
};

/// Reads the config.json of any family (architectures::read_model).
Model read_model(const Value& config);

/// All parameters, adapters among them, a tied head once, in the order of the modules.
std::vector<Tensor> tensors(const Model& model);

/// Elements: all, and those that one token meets (of experts only top_k, of the embeddings none but a tied head).
double parameter_count(const Model& model);
double active_parameters(const Model& model);

/// Elements that a depth of multi-token prediction has besides its block: a map of two widths to one, three norms.
double depth_end_elements(const Model& model);

/// The model's own arithmetic in FLOP for one token of a sequence of so many, forward and backward: 6 per matrix
/// element that it meets, and 12 per number of q and token seen (Kaplan et al. 2020; PaLM, Chowdhery et al. 2022,
/// appendix B). No recomputation. Causal attention counts in full, as the usual MFU does; `half`: as it is computed.
/// Beside adapters 4 per element of a frozen matrix, and 6 per element of the adapters.
double model_flops_per_token(const Model& model, double sequence, bool half = false);

}  // namespace tessera::plan
