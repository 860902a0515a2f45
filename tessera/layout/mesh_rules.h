#pragma once
/// \file
/// Whether a model fits a mesh: what tensor parallelism cuts must divide by tp, what context parallelism cuts by cp.
/// Sources: Megatron-LM's validate_args (megatron/training/arguments.py) and TransformerConfig.__post_init__; the two
/// chunks of every rank of a ring: layout/sequence.h.

#include <tessera/layout/context_method.h>
#include <tessera/layout/mesh.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::layout {

/// Sizes of a transformer. 0: not known, or there is no such thing; rules about it are passed over.
struct ModelSizes {
  std::string name = "the model";  ///< for messages
  std::int64_t heads = 0;          ///< those of queries
  std::int64_t key_heads = 0;      ///< those of keys and values; 0: as many as heads
  std::int64_t intermediate = 0;   ///< width between the two layers of an MLP
  std::int64_t vocabulary = 0;     ///< rows of the embedding, which may be divided unevenly
};

/// What a run does with the mesh.
struct MeshUse {
  std::int64_t sequence = 0;  ///< tokens of a row; 0: not known
  std::int64_t rows = 0;      ///< a step takes so many, over all data-parallel ranks; 0: not known
  bool sequence_parallel = false;
  ContextMethod method = ContextMethod::p2p;
  int head_ranks = 0;  ///< a2a+p2p: ranks of cp that exchange heads; 0: head_ranks_of() chooses
};

/// What does not fit.
struct MeshProblem {
  enum class Change { tp, cp, sequence, rows };
  std::string text;  ///< the rule, the numbers and the choices
  Change change;     ///< what to change
  std::vector<std::int64_t>
      choices;  ///< what to make it: with one of them the rules about `change` hold; the nearest ones
};

/// All that does not fit, in an order in which it can be repaired: tp, cp, sequence, rows. Changes of tp and cp keep
/// the number of ranks: data-parallel ones become fewer or more.
std::vector<MeshProblem> mesh_problems(const Mesh& mesh, const ModelSizes& model, const MeshUse& use);

/// Throws InputError with all of them.
void check_mesh(const Mesh& mesh, const ModelSizes& model, const MeshUse& use);

}  // namespace tessera::layout
