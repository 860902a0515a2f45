#pragma once
/// \file
/// Bytes of every rank of a run, by kind, before it runs. Every pipeline stage is looked at: the first has the
/// embedding and most micro-batches in flight, the last the head.
///
/// Sources: which tensors are kept are those that the operations in tessera/nn save for backward (the functions' own
/// save_for_backward calls); the states of a strategy: Rajbhandari et al. 2020, "ZeRO", section 3, and what
/// layout/state_bytes.h counts on the very flat layouts (a test compares the two); micro-batches in flight: the
/// schedules themselves.

#include <tessera/plan/plan.h>

#include <array>
#include <string_view>
#include <vector>

namespace tessera::plan {

enum class MemoryKind : unsigned char {
  parameters,     ///< that stay
  gradients,      ///< that stay
  optimizer,      ///< its states
  buffers,        ///< gathered units, gradients on their way
  activations,    ///< kept for backward
  head,           ///< logits, and what the loss and a block's backward need for a moment
  communication,  ///< messages of the pipeline, blocks of a ring
  reserve,        ///< on the CPU: what is resident and no tensor asked for (rounding, freed blocks, pages of peers)
  process         ///< program, libraries, the device's context
};
inline constexpr std::size_t memory_kinds = 9;
std::string_view name_of(MemoryKind kind);

/// Bytes by kind.
struct Memory {
  std::array<double, memory_kinds> bytes{};
  double peers = 0;  ///< on the CPU: that part of the reserve which is peers' pages, so that their host has them once
  double& operator[](MemoryKind kind) { return bytes[static_cast<std::size_t>(kind)]; }
  double operator[](MemoryKind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
  double total() const;
  /// What tensors ask for: all but reserve and process.
  double allocated() const;
  MemoryKind largest() const;
};
/// Bytes that so many processes of one host need together: pages that several of them have mapped count once.
/// `by_rank`: of the ranks of a pipeline, of which those on the host are taken for a fair sample.
double bytes_on_host(const std::vector<Memory>& by_rank, int processes);

/// What one rank of tp and ep holds of each piece of a model, in elements. Made once, asked for often.
struct Elements {
  struct Piece {
    double shared = 0, experts = 0;  ///< outside of experts, and in them
    double frozen = 0;               ///< that have neither gradients nor states
    double packed_bytes = 0;         ///< what frozen weights in few bits take, whole on every rank
    double trained() const { return shared + experts; }
    double all() const { return trained() + frozen; }
    void add(const Piece& other, double times = 1);
  };
  Piece embeddings, end;  ///< a tied head counts with the embeddings, computed depths as blocks, others with the end
  Piece block[2];         ///< dense, sparse
  Piece attention[2];     ///< that half of a block which ends with the sum after attention, its norms included
  double head = 0;        ///< the matrix of logits, tied or not
  double tower_layer = 0, tower_layers = 0;  ///< one of a vision tower, all of which lies with the embeddings; how many
};
Elements elements_of(const Model& model, int tp, int ep);

/// Bytes that one block keeps for the backward of a micro-batch, and those for a moment in its backward.
struct BlockActivations {
  double kept = 0, moment = 0;
  double attention = 0;  ///< that part of `kept` which the block's first half keeps: its input, and attention's
  double net = 0;        ///< what the fullest moment of its backward needs beyond `kept`, of which some is gone by then
  double matrices =
      0;  ///< that part of `net` which is gradients of weights, where they are not written to where they stay
  double forward = 0;  ///< what the end of its forward, made again, needs beyond `kept`; 0: not known
  double input = 0;    ///< the block's input, which is all that a recomputed block keeps

  /// What a block keeps when the run recomputes it, or half of it: the other half, and the recomputed part's input.
  /// `attentions`, `mlps`: how many of the halves are there.
  double kept_when_recomputed(const Plan& run, double attentions = 1, double mlps = 1) const;
  /// What comes back into memory when it is recomputed, its input counted.
  double recomputed(const Plan& run) const;
};
/// `rounded`: as allocators round tensors' sizes, else what tensors ask for.
BlockActivations block_activations(const Model& model, const Plan& run, bool sparse, bool rounded = true);

/// A stage's share of the embeddings, blocks and end. `stage`: of run.parts.
Elements::Piece stage_elements(const Model& model, const Elements& elements, const layout::StagePart& part);

/// One per rank of the pipeline: its stages together. Exact in flight: from the schedule. Throws InputError for a
/// schedule that the shape does not allow. `process_bytes`: of program and device (hardware.h).
std::vector<Memory> memory_by_rank(const Model& model, const Plan& run, double process_bytes);

/// The same for one rank, with the schedule's formula for what is in flight: what a search asks. `in_flight`:
/// micro-batches x stages of the rank.
Memory memory_of_rank(const Model& model, const Plan& run, const Elements& elements, int rank, int in_flight,
                      double process_bytes);
/// The same with all blocks of a rank in one piece and what they keep already known: a search's inner loop. `kinds`:
/// dense and sparse blocks. `in_flight`: micro-batches of the whole piece.
Memory memory_of_piece(const Model& model, const Plan& run, const Elements& elements, const layout::StagePart& piece,
                       const BlockActivations kinds[2], double in_flight, double process_bytes);
/// So many micro-batches show what a pipeline does with any larger number that leaves the same rest of p: the middle of
/// every schedule repeats itself, so bubbles and peaks no longer change.
int representative_micro_batches(const Plan& run);
/// The rank of the stage s of p x v under the run's schedule.
int rank_of_stage(const Plan& run, int stage);

/// The largest, and its rank.
std::pair<Memory, int> largest(const std::vector<Memory>& by_rank);

}  // namespace tessera::plan
