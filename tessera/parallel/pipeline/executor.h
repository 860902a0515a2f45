#pragma once
/// \file
/// parallel/pipeline/: pipeline schedules with tensors. This header: one rank's part of a batch.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/layout/schedule/schedule.h>
#include <tessera/layout/schedule/timing.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// The functions of one stage.
struct PipelineStage {
  /// F of a micro-batch. `input` is undefined for stage 0; else it is a leaf, which requires grad under grad mode
  /// unless nothing in the stages before is trained. Returns the output (any dense tensor on the group's device, at
  /// most 11 dimensions; the input itself is fine), which the stage must not change later; of the last stage the loss,
  /// one element, scaled as it shall be differentiated (without backward: any tensor).
  std::function<at::Tensor(int micro_batch, const at::Tensor& input)> forward;
};

/// How a pipeline's messages travel.
struct PipelineOptions {
  /// Rank r of it is rank r of schedules. Empty: this process has all stages.
  comm::Group group = {};
  /// A second group of the same ranks, for messages to lower ranks. Needed where messages between two ranks are done in
  /// the order in which both start them (Capabilities::ordered_messages: nccl), since both directions are under way at
  /// a time. Other backends need none.
  comm::Group back = {};
  std::map<int, PipelineStage> stages = {};  ///< this rank's, by number
  /// Sizes of what passes between stages in a micro-batch, where they are known: the same on every rank and between all
  /// stages. Empty: the first micro-batch of a batch tells the sizes of all, or with `variable_sizes` each its own.
  /// Type, and whether a gradient is wanted, are those of a batch's first micro-batch, and travel with it.
  std::function<std::vector<std::int64_t>(int micro_batch)> sizes = {};
  bool variable_sizes = false;
  /// I is the whole backward, and W has nothing left to do: a micro-batch's gradients are complete at one moment.
  bool undivided = false;
  /// Before every computation (F, I, W, B): phases, accumulation. Afterwards the rank's phase is "2F3" (heartbeat.h).
  std::function<void(const layout::schedule::Action&)> enter = {};
  /// After every computation.
  std::function<void(const layout::schedule::Action&)> leave = {};
  /// What GATHER, RESHARD and REDUCE do; empty: nothing.
  std::function<void(const layout::schedule::Action&)> sharding = {};
};

/// Runs this rank's list of actions, batch by batch. Not thread-safe: one thread runs batches and everything in them.
///
/// Backward. B of a stage is the backward of its output with the gradient that the next stage sent; parameters
/// accumulate into grad() as in any backward. I is the same, but gradients of weights of linear maps (nn/linear.h) wait
/// for W (nn/weight_gradients.h); all other operators' gradients are computed in I. Each I, each W that has something
/// to do, and each B is an outermost backward of its own for listeners (DDP, sharding). The bits of I and W are B's.
/// Outputs are held only until they are sent; a micro-batch's graph until its I or B.
///
/// A stage whose output does not require grad (everything up to it is frozen) has no backward: I, W and B do nothing,
/// and no gradient is sent to it, nor by it. Its partner knows from the header of the activations. A trained stage
/// whose loss does not depend on its input sends zeros.
///
/// Errors. What a stage throws comes out of run() with its place in front: "pipeline: stage 2, micro-batch 3 (2F3):
/// ...", as Error (InputError stays one); other types derived from Error come out as they are. A batch that failed
/// leaves messages under way: later calls of run() throw.
class PipelineExecutor {
 public:
  /// Throws InputError when `back` is missing where it is needed.
  explicit PipelineExecutor(PipelineOptions options);
  ~PipelineExecutor();
  PipelineExecutor(const PipelineExecutor&) = delete;
  PipelineExecutor& operator=(const PipelineExecutor&) = delete;

  /// One batch by `schedule`, which find_problem() (layout/schedule/check.h) accepts: computations, or with messages.
  /// Without any backward it runs without grad. Returns the losses by micro-batch (detached) on the rank that has the
  /// last stage, nothing elsewhere. Collective over the group. What a schedule needs is worked out once; the last few
  /// are remembered.
  std::vector<at::Tensor> run(const layout::schedule::Schedule& schedule);

  /// This rank's computations of such a batch and nothing of the others', to learn whether it fits into memory: what
  /// would be received is zeros of the announced sizes (PipelineOptions::sizes), fp32 activations, and nothing is sent.
  /// Collective only as far as the stages are. What a stage throws comes out as it is.
  void rehearse(const layout::schedule::Schedule& schedule);

  /// When the last batch's computations ran, and when receives were waited for, in order; seconds since its begin.
  const std::vector<layout::schedule::TimedAction>& measured() const { return measured_; }

  /// Those of the last batch whose result - what F hands on, or the loss; the gradient that I or B hands
  /// back - holds a NaN or an infinity, in order.
  std::vector<layout::schedule::Action> not_finite() const;

 private:
  struct Plan;
  struct Batch;
  const Plan& plan_of(const layout::schedule::Schedule& schedule);
  void act(Batch& batch, const layout::schedule::Action& action);
  void compute(Batch& batch, const layout::schedule::Action& action);
  void forward(Batch& batch, const layout::schedule::Action& action);
  void backward(Batch& batch, const layout::schedule::Action& action);
  void receive(Batch& batch, const layout::schedule::Action& action);
  void send(Batch& batch, const layout::schedule::Action& action);
  void note(const layout::schedule::Action& action, const at::Tensor& result);

  PipelineOptions options_;
  int rank_ = 0;
  struct Messages;
  std::unique_ptr<Messages> messages_;
  std::vector<std::unique_ptr<Plan>> plans_;  // the newest first
  std::vector<layout::schedule::TimedAction> measured_;
  std::vector<std::pair<layout::schedule::Action, at::Tensor>> sums_;  // each result; see not_finite()
  std::int64_t begin_ns_ = 0;
  bool failed_ = false;
};

}  // namespace tessera::parallel
