#pragma once
/// \file
/// The mesh of a run and its groups: who has other rows, who another part of the same rows, who another part of the
/// same layers.

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
  comm::Group data;       ///< the ranks that have other rows (dp)
  comm::Group gradients;  ///< those that have other tokens (dp x cp)
  comm::Group engine;     ///< those over which the sharding engine divides: the same, or edp of these
  comm::Group experts;    ///< ep x etp: those that hold all experts together
  comm::Group beside;    ///< those of them that hold the same part of all else (ep, where etp is tp), for its gradients
  comm::Group stages;    ///< those that have other parameters of the model: pp x beside
  comm::Group tensor;    ///< tp
  comm::Group pipeline;  ///< pp
  comm::Group back;      ///< the same ranks, for messages to lower ones, where the backend keeps messages in order
  comm::Group tied;      ///< the same ranks, for tied embeddings in fixed order (parallel/pipeline/tied_embedding.h)
  ContextGroups context;  ///< cp
  /// Of the micro-batches that the ranks of `data` run at once, in the order of the rows, the one that is this rank's.
  int place = 0;
  /// Fixed order with experts on several ranks: what connects their layers (expert_parallel) with the engine, which
  /// adds their gradients up.
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};

  bool sequence_parallel = false;

  /// Tokens to which rows of so many are filled up so that cp, and tp with sequence parallelism, cut them.
  std::int64_t filled_length(std::int64_t tokens) const;
  int tensor_ranks() const { return mesh.size(layout::Axis::tp); }
  int context_ranks() const { return mesh.size(layout::Axis::cp); }
  int pipeline_ranks() const { return mesh.size(layout::Axis::pp); }
  int expert_ranks() const { return mesh.size(layout::Axis::ep); }
  /// Where experts lie, for parallel/expert/experts.h.
  ExpertRanks places_of_experts() const { return {experts, mesh.size(layout::Axis::etp), tensor}; }
  /// Each rank holds some of the experts, or parts of them.
  bool divides_experts() const { return expert_ranks() * tensor_ranks() > 1; }
  /// Several ranks work on the same rows.
  bool cuts() const { return tensor_ranks() * context_ranks() * pipeline_ranks() > 1; }
};

/// Collective. Throws InputError for settings that do not fit the ranks.
RunGroups make_run_groups(const RunConfig& config, comm::World& world);

/// Throws InputError when the mesh cannot cut this model, or rows of `block_size` tokens: layout/mesh_rules.h. (Rows
/// are filled up to what cp divides, so that only sequence parallelism asks something of their length.)
void check_model_fits(const RunGroups& groups, const RunConfig& config, const models::LanguageModel& model,
                      std::int64_t block_size);

}  // namespace tessera::train
