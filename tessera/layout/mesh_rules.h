#pragma once
/// \file
/// Checks whether a model fits a mesh: dimensions cut by tensor parallelism must divide by tp, those cut by context
/// parallelism by cp. Sources: Megatron-LM's validate_args (megatron/training/arguments.py) and
/// TransformerConfig.__post_init__; for the two chunks of every rank of a ring: layout/sequence.h.

#include <tessera/layout/context_method.h>
#include <tessera/layout/mesh.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::layout {

/// Sizes of a transformer. 0: unknown or absent; rules about it are skipped.
struct ModelSizes {
  std::string name = "the model";  ///< for messages
  std::int64_t heads = 0;          ///< query heads
  std::int64_t key_heads = 0;      ///< key and value heads; 0: same as heads
  std::int64_t intermediate = 0;   ///< width between the two layers of an MLP
  std::int64_t vocabulary = 0;     ///< rows of the embedding; may be divided unevenly
};

/// How a run uses the mesh.
struct MeshUse {
  std::int64_t sequence = 0;  ///< tokens per row; 0: unknown
  std::int64_t rows = 0;      ///< rows per step over all data-parallel ranks; 0: unknown
  bool sequence_parallel = false;
  ContextMethod method = ContextMethod::p2p;
  int head_ranks = 0;  ///< a2a+p2p: ranks of cp that exchange heads; 0: head_ranks_of() chooses
};

/// A rule that the mesh violates.
struct MeshProblem {
  enum class Change { tp, cp, sequence, rows };
  std::string text;                   ///< the rule, the numbers and the choices
  Change change;                      ///< what to change
  std::vector<std::int64_t> choices;  ///< nearest values that satisfy all rules about `change`
};

/// All violated rules, in an order in which they can be fixed: tp, cp, sequence, rows. Changes of tp and cp keep the
/// number of ranks; the data-parallel size changes instead.
std::vector<MeshProblem> mesh_problems(const Mesh& mesh, const ModelSizes& model, const MeshUse& use);

/// Throws InputError with all violated rules.
void check_mesh(const Mesh& mesh, const ModelSizes& model, const MeshUse& use);

}  // namespace tessera::layout
