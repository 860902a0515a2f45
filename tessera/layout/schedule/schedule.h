#pragma once
/// \file
/// layout/schedule/: pipeline schedules as data: the order of every rank's actions. Nothing here computes or
/// communicates:
///
///   schedule.h    the data structure: a list of actions per rank
///   generators.h  GPipe, 1F1B, interleaved, breadth-first, ZB-H1, ZB-H2, ZBV, DualPipeV
///   table.h       their names, requirements, bubbles, memory, and when to use which
///   lower.h       adds sends, receives, gathers and reductions to the computations
///   check.h       checks a schedule before it runs
///   timing.h      start and end of every action, given costs
///   cut.h         where to cut a model for a schedule
///   files.h       PyTorch's CSV, and a text form
///   draw.h        drawings of timed actions, as text and SVG
///
/// The model is divided into stages, numbered in the order of the forward pass; a rank holds one or several of them. A
/// batch is divided into micro-batches. Names and printed form of the actions are those of PyTorch's "schedule IR"
/// (torch/distributed/pipelining/schedules.py, _Action): stage, kind, micro-batch, as in "2F3".

#include <tessera/base/words.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout::schedule {

enum class Kind : unsigned char {
  forward,           ///< F
  input_gradient,    ///< I: the part of backward that computes the gradient of the stage's input
  weight_gradient,   ///< W: the other part, the gradients of its weights; any time after I
  backward,          ///< B: both at once
  send_forward,      ///< SEND_F: sends the stage's output to the rank of the next stage
  receive_forward,   ///< RECV_F: receives the stage's input from the rank of the previous stage
  send_backward,     ///< SEND_B: sends the gradient of the stage's input to the rank of the previous stage
  receive_backward,  ///< RECV_B: receives the gradient of the stage's output from the rank of the next stage
  gather,            ///< GATHER: makes the stage's sharded parameters whole (PyTorch: UNSHARD)
  reshard,           ///< RESHARD: drops the whole parameters
  reduce             ///< REDUCE: reduces the stage's gradients, summed over the batch (PyTorch: REDUCE_GRAD)
};  ///< kinds of actions
/// "F", "I", ... with PyTorch's words as synonyms; lower case, as required by WordTable, but printed in upper case.
const WordTable& words_of(Kind);

bool is_compute(Kind kind);       ///< F, I, W, B
bool is_message(Kind kind);       ///< sends and receives
bool is_send(Kind kind);          ///< SEND_F, SEND_B
bool has_micro_batch(Kind kind);  ///< computations and messages; other actions apply to a whole stage

/// One action of a rank: a kind, a stage, a micro-batch.
struct Action {
  Kind kind = Kind::forward;  ///< computation, message, or operation on a stage's parameters
  /// This computation and the next one in the list, a forward and a backward, are overlapped, so that each hides the
  /// other's waiting (DualPipe's overlapped chunks; PyTorch: OVERLAP_F_B).
  bool with_next = false;
  std::int32_t stage = 0;         ///< index in the order of the forward pass
  std::int32_t micro_batch = -1;  ///< -1 unless has_micro_batch()

  bool operator==(const Action&) const = default;
};
/// "2F3", "2SEND_F3", "2GATHER".
std::string text_of(const Action& action);

/// The actions of every pipeline rank in a step.
struct Schedule {
  std::string name;                        ///< the generator's name; "" if read from a file without a name
  int micro_batches = 0;                   ///< per step
  std::vector<int> rank_of;                ///< rank of every stage
  std::vector<std::vector<Action>> ranks;  ///< actions of every rank, in order

  int stages() const { return static_cast<int>(rank_of.size()); }  ///< stages of the whole pipeline
  bool operator==(const Schedule&) const = default;
};

/// The stages of a rank, ascending.
std::vector<int> stages_of(const Schedule& schedule, int rank);
/// Number of actions of all ranks.
std::int64_t count_actions(const Schedule& schedule);
/// Whether it contains messages: false for a schedule of computations only.
bool has_messages(const Schedule& schedule);
/// Whether it contains a backward; false: evaluation.
bool has_backward(const Schedule& schedule);

/// How the p x v stages are placed on ranks.
enum class Placement : unsigned char {
  loop,  ///< s mod p: rank r has r, p + r, 2 p + r, ... (Narayanan et al. 2021)
  v      ///< V-shaped: rank r has r and 2 p - 1 - r, and so on (Qi et al. 2024, ZBV)
};
/// Throws InputError unless there is at least one rank and one stage.
std::vector<int> place_stages(Placement placement, int ranks, int stages_per_rank);

/// The same schedule without backward, for evaluation. Also drops sends, gathers etc., which lower.h adds.
Schedule forward_only(const Schedule& schedule);
/// Forwards of `micro_batches` micro-batches on the same stages: all forwards of one stage, then those of the next.
Schedule forward_only(const Schedule& schedule, int micro_batches);
/// Only F, I, W and B.
Schedule computations_of(const Schedule& schedule);

}  // namespace tessera::layout::schedule
