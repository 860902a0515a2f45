#pragma once
/// \file
/// The mesh of a run and its groups: ranks with different rows, with different parts of the same rows, or with
/// different parts of the same layers.

#include <tessera/comm/group.h>
#include <tessera/comm/world.h>
#include <tessera/layout/mesh.h>
#include <tessera/models/language_model.h>
#include <tessera/parallel/context/groups.h>
#include <tessera/parallel/expert/experts.h>

#include <cstdint>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

struct RunGroups {
  layout::Mesh mesh;
  comm::Group data;       ///< ranks with different rows (dp)
  comm::Group gradients;  ///< ranks with different tokens (dp x cp)
  comm::Group engine;     ///< ranks over which the sharding engine divides: those of `gradients`, or their edp part
  comm::Group experts;    ///< ep x etp: ranks that together hold all experts
  comm::Group beside;     ///< subset of these ranks with the same non-expert parameters (ep if etp is tp)
  comm::Group stages;     ///< ranks with different parameters of the model: pp x `beside`
  comm::Group tensor;     ///< tp
  comm::Group pipeline;   ///< pp
  comm::Group back;       ///< same ranks; carries messages to lower ranks if the backend keeps messages in order
  comm::Group tied;       ///< same ranks; for tied embeddings in fixed order (parallel/pipeline/tied_embedding.h)
  ContextGroups context;  ///< cp
  /// Index of this rank's micro-batch, in row order, among those that the ranks of `data` run at once.
  int place = 0;
  /// For fixed order with experts on several ranks: passes gradients from the expert layers (expert_parallel) to the
  /// engine, which adds them up.
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};

  bool sequence_parallel = false;

  /// Length to which rows of `tokens` tokens are padded so that cp, and tp with sequence parallelism, can cut them.
  std::int64_t filled_length(std::int64_t tokens) const;
  int tensor_ranks() const { return mesh.size(layout::Axis::tp); }
  int context_ranks() const { return mesh.size(layout::Axis::cp); }
  int pipeline_ranks() const { return mesh.size(layout::Axis::pp); }
  int expert_ranks() const { return mesh.size(layout::Axis::ep); }
  /// Returns the placement of experts, for parallel/expert/experts.h.
  ExpertRanks places_of_experts() const { return {experts, mesh.size(layout::Axis::etp), tensor}; }
  /// Whether each rank holds only some of the experts, or parts of them.
  bool divides_experts() const { return expert_ranks() * tensor_ranks() > 1; }
  /// Whether several ranks work on the same rows.
  bool cuts() const { return tensor_ranks() * context_ranks() * pipeline_ranks() > 1; }
};

/// Collective. Throws InputError for settings that do not fit the ranks.
RunGroups make_run_groups(const RunConfig& config, comm::World& world);

/// Throws InputError when the mesh cannot cut this model, or rows of `block_size` tokens: layout/mesh_rules.h. (Rows
/// are padded to a multiple of cp, so only sequence parallelism constrains their length.)
void check_model_fits(const RunGroups& groups, const RunConfig& config, const models::LanguageModel& model,
                      std::int64_t block_size);

}  // namespace tessera::train
