#pragma once
/// \file
/// Predicted memory of every rank of a run, in bytes by kind. Every pipeline stage is considered: the first has the
/// embedding and the most micro-batches in flight, the last has the head.
///
/// Sources: the kept tensors are those that the operations in tessera/nn save for backward (their own save_for_backward
/// calls); the states of a strategy follow Rajbhandari et al. 2020, "ZeRO", section 3, and layout/state_bytes.h, which
/// uses the engine's flat layouts (a test compares the two); micro-batches in flight come from the schedules
/// themselves.

#include <tessera/plan/plan.h>

#include <array>
#include <string_view>
#include <vector>

namespace tessera::plan {

enum class MemoryKind : unsigned char {
  parameters,     ///< persistent
  gradients,      ///< persistent
  optimizer,      ///< optimizer states
  buffers,        ///< gathered units, gradients in flight
  activations,    ///< kept for backward
  head,           ///< logits, and temporary tensors of the loss and of a block's backward
  communication,  ///< pipeline messages, blocks of a ring
  reserve,        ///< on the CPU: resident memory not used by tensors (rounding, freed blocks, peers' pages)
  process         ///< program, libraries, device context
};
inline constexpr std::size_t memory_kinds = 9;
std::string_view name_of(MemoryKind kind);

/// Bytes by kind.
struct Memory {
  std::array<double, memory_kinds> bytes{};
  double peers = 0;  ///< on the CPU: the part of the reserve that consists of peers' pages, which exist only once on a
                     ///< host
  double& operator[](MemoryKind kind) { return bytes[static_cast<std::size_t>(kind)]; }
  double operator[](MemoryKind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
  double total() const;
  /// Memory of tensors: everything except reserve and process.
  double allocated() const;
  MemoryKind largest() const;
};
/// Bytes that `processes` processes of one host need together: pages mapped by several of them count once. `by_rank`:
/// memory of a pipeline's ranks, of which the host's ranks are assumed to be a representative sample.
double bytes_on_host(const std::vector<Memory>& by_rank, int processes);

/// Elements of each piece of a model on one rank of tp and ep. Computed once, used many times.
struct Elements {
  struct Piece {
    double shared = 0, experts = 0;  ///< elements outside of experts, and in experts
    double frozen = 0;               ///< without gradients or states
    double packed_bytes = 0;         ///< quantized frozen weights, whole on every rank
    double trained() const { return shared + experts; }
    double all() const { return trained() + frozen; }
    void add(const Piece& other, double times = 1);
  };
  Piece embeddings, end;  ///< a tied head counts as embeddings, computed depths as blocks, other depths as the end
  Piece block[2];         ///< dense, sparse
  Piece attention[2];     ///< the first half of a block, up to the sum after attention, its norms included
  double head = 0;        ///< the matrix of logits, tied or not
  /// one layer of a vision tower, which counts as part of the embeddings; number of layers
  double tower_layer = 0, tower_layers = 0;
};
Elements elements_of(const Model& model, int tp, int ep);

/// Bytes that one block keeps for the backward of a micro-batch, and temporary bytes of its backward.
struct BlockActivations {
  double kept = 0, moment = 0;
  /// the part of `kept` that belongs to the block's first half: its input, and attention's activations
  double attention = 0;
  /// additional memory beyond `kept` at the peak of its backward, net of what has been freed by then
  double net = 0;
  double matrices = 0;  ///< the part of `net` for weight gradients that are not written directly to their final place
  double forward = 0;   ///< additional memory beyond `kept` at the end of its recomputed forward; 0: unknown
  double input = 0;     ///< the block's input, which is all that a recomputed block keeps

  /// Bytes that a block keeps if the run recomputes it or half of it, that is, the recomputed part's input and the
  /// other half. `attentions`, `mlps`: number of halves present.
  double kept_when_recomputed(const Plan& run, double attentions = 1, double mlps = 1) const;
  /// Bytes that recomputation restores, including the input.
  double recomputed(const Plan& run) const;
};
/// `rounded`: with the allocator's rounding of tensor sizes; otherwise the requested sizes.
BlockActivations block_activations(const Model& model, const Plan& run, bool sparse, bool rounded = true);

/// A stage's share of the embeddings, blocks and end. `part`: one of run.parts.
Elements::Piece stage_elements(const Model& model, const Elements& elements, const layout::StagePart& part);

/// One entry per pipeline rank, with its stages together. Micro-batches in flight are exact, from the schedule. Throws
/// InputError if the schedule does not support the shape. `process_bytes`: bytes of program and device context
/// (hardware.h).
std::vector<Memory> memory_by_rank(const Model& model, const Plan& run, double process_bytes);

/// The same for one rank, for searches: uses the schedule's formula for micro-batches in flight. `in_flight`:
/// micro-batches x stages of the rank.
Memory memory_of_rank(const Model& model, const Plan& run, const Elements& elements, int rank, int in_flight,
                      double process_bytes);
/// The same with all blocks of a rank in one piece and known activations, for a search's inner loop. `kinds`: dense and
/// sparse blocks. `in_flight`: micro-batches of the whole piece.
Memory memory_of_piece(const Model& model, const Plan& run, const Elements& elements, const layout::StagePart& piece,
                       const BlockActivations kinds[2], double in_flight, double process_bytes);
/// Number of micro-batches that represents any larger number with the same remainder modulo p: the middle of every
/// schedule repeats, so bubbles and peaks do not change.
int representative_micro_batches(const Plan& run);
/// The rank of stage s of p x v under the run's schedule.
int rank_of_stage(const Plan& run, int stage);

/// The largest entry and its rank.
std::pair<Memory, int> largest(const std::vector<Memory>& by_rank);

}  // namespace tessera::plan
