#pragma once
/// \file
/// layout/schedule/: pipeline schedules as data: who does what, in which order. Nothing here computes or communicates:
///
///   schedule.h    what a schedule is: per rank a list of actions
///   generators.h  GPipe, 1F1B, interleaved, breadth-first, ZB-H1, ZB-H2, ZBV, DualPipeV
///   table.h       their names, requirements, bubbles, memory, and when to use which
///   lower.h       adds sends, receives, gathers and reductions to the computations
///   check.h       proves a schedule right before it runs
///   timing.h      when everything happens, given costs
///   cut.h         where to cut a model for a schedule
///   files.h       PyTorch's CSV, and a text form
///   draw.h        drawings of timed actions, as text and SVG
///
/// The model is cut in stages, numbered in the order of the forward pass; a rank holds one or several of them. A batch
/// is cut in micro-batches. Names and print form of the actions are those of PyTorch's "schedule IR"
/// (torch/distributed/pipelining/schedules.py, _Action): stage, what, micro-batch, as "2F3".

#include <tessera/base/words.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout::schedule {

enum class Kind : unsigned char {
  forward,           ///< F
  input_gradient,    ///< I: the part of backward that gives the gradient of the stage's input
  weight_gradient,   ///< W: the other part, the gradients of its weights; any time after I
  backward,          ///< B: both at once
  send_forward,      ///< SEND_F: the stage's output goes to the rank of the next stage
  receive_forward,   ///< RECV_F: the stage's input comes from the rank of the stage before
  send_backward,     ///< SEND_B: the gradient of the stage's input goes to the rank of the stage before
  receive_backward,  ///< RECV_B: the gradient of the stage's output comes from the rank of the next stage
  gather,            ///< GATHER: the stage's sharded parameters become whole (PyTorch: UNSHARD)
  reshard,           ///< RESHARD: and are dropped again
  reduce             ///< REDUCE: gradients of the stage, summed over the batch, are reduced (PyTorch: REDUCE_GRAD)
};  ///< what a rank can do
/// "F", "I", ... With PyTorch's words as synonyms. Lower case, as WordTable wants it; printed in upper case.
const WordTable& words_of(Kind);

bool is_compute(Kind kind);       ///< F, I, W, B
bool is_message(Kind kind);       ///< sends and receives
bool is_send(Kind kind);          ///< SEND_F, SEND_B
bool has_micro_batch(Kind kind);  ///< computations and messages; the others concern a stage as a whole

/// One thing that a rank does: a kind, a stage, a micro-batch.
struct Action {
  Kind kind = Kind::forward;  ///< a computation, a message, or something about a stage's parameters
  /// This computation and the next of the list, a forward and a backward, are done as one, so that each hides what the
  /// other waits for (DualPipe's overlapped chunks; PyTorch: OVERLAP_F_B).
  bool with_next = false;
  std::int32_t stage = 0;         ///< its number in the order of the forward pass
  std::int32_t micro_batch = -1;  ///< -1 where has_micro_batch() says no

  bool operator==(const Action&) const = default;
};
/// "2F3", "2SEND_F3", "2GATHER".
std::string text_of(const Action& action);

/// What every rank of a pipeline does in a step, in its order.
struct Schedule {
  std::string name;                        ///< what it was made by; "" when read from a file without a name
  int micro_batches = 0;                   ///< micro-batches of a step
  std::vector<int> rank_of;                ///< for every stage the rank that holds it
  std::vector<std::vector<Action>> ranks;  ///< for every rank its actions, in order

  int stages() const { return static_cast<int>(rank_of.size()); }  ///< stages of the whole pipeline
  bool operator==(const Schedule&) const = default;
};

/// The stages of a rank, ascending.
std::vector<int> stages_of(const Schedule& schedule, int rank);
/// Actions of all ranks.
std::int64_t count_actions(const Schedule& schedule);
/// Whether anything travels between ranks: false for a schedule of computations only.
bool has_messages(const Schedule& schedule);
/// Whether there is a backward at all; false: evaluation.
bool has_backward(const Schedule& schedule);

/// Which rank holds stage s of p x v.
enum class Placement : unsigned char {
  loop,  ///< s mod p: rank r has r, p + r, 2 p + r, ... (Narayanan et al. 2021)
  v      ///< to and fro: rank r has r and 2 p - 1 - r, and with more stages so on (Qi et al. 2024, ZBV)
};
/// Throws InputError unless there is a rank and a stage at least.
std::vector<int> place_stages(Placement placement, int ranks, int stages_per_rank);

/// The same without backward: what evaluation runs. Sends, gathers and the like go too; lower.h adds them.
Schedule forward_only(const Schedule& schedule);
/// Forwards on the same stages, but of so many micro-batches: every stage's, stage after stage.
Schedule forward_only(const Schedule& schedule, int micro_batches);
/// Only F, I, W and B.
Schedule computations_of(const Schedule& schedule);

}  // namespace tessera::layout::schedule
