#pragma once
/// \file
/// parallel/pipeline/: execution of pipeline schedules on tensors. This header: one rank's part of a batch.

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
  /// F of a micro-batch. `input` is undefined for stage 0; otherwise it is a leaf that requires grad under grad mode,
  /// unless nothing in the stages before is trained. Returns the output (any dense tensor on the group's device with at
  /// most 11 dimensions; may be the input itself), which the stage must not change later. The last stage returns the
  /// loss: one element, scaled as it is to be differentiated (without backward: any tensor).
  std::function<at::Tensor(int micro_batch, const at::Tensor& input)> forward;
};

/// Configuration of a pipeline's messages and stages.
struct PipelineOptions {
  /// Rank r of the group is rank r of schedules. Empty: this process has all stages.
  comm::Group group = {};
  /// A second group of the same ranks, for messages to lower ranks. Required where messages between two ranks are
  /// processed in the order in which both start them (Capabilities::ordered_messages: nccl), since both directions are
  /// in flight at a time. Other backends do not need it.
  comm::Group back = {};
  std::map<int, PipelineStage> stages = {};  ///< this rank's stages, by number
  /// Sizes of the tensors that pass between stages in a micro-batch, if known: the same on every rank and between all
  /// stages. Empty: the first micro-batch of a batch determines the sizes for all, or with `variable_sizes` each has
  /// its own. Type, and whether a gradient is wanted, are those of a batch's first micro-batch and are sent with it.
  std::function<std::vector<std::int64_t>(int micro_batch)> sizes = {};
  bool variable_sizes = false;
  /// I is the whole backward and W does nothing, so all of a micro-batch's gradients are complete at the same time.
  bool undivided = false;
  /// Called before every computation (F, I, W, B), for phases and accumulation. Sets the rank's phase to "2F3"
  /// (heartbeat.h) afterwards.
  std::function<void(const layout::schedule::Action&)> enter = {};
  /// Called after every computation.
  std::function<void(const layout::schedule::Action&)> leave = {};
  /// Runs GATHER, RESHARD and REDUCE; empty: these do nothing.
  std::function<void(const layout::schedule::Action&)> sharding = {};
};

/// Runs this rank's list of actions, batch by batch. Not thread-safe: one thread runs batches and everything in them.
///
/// Backward. B of a stage is the backward of its output with the gradient that the next stage sent; parameters
/// accumulate into grad() as in any backward. I is the same, but weight gradients of linear maps (nn/linear.h) are
/// deferred to W (nn/weight_gradients.h); all other operators' gradients are computed in I. Each I, each non-empty W,
/// and each B is a separate outermost backward for listeners (DDP, sharding). I and W give the same bits as B. Outputs
/// are kept only until they are sent, a micro-batch's graph until its I or B.
///
/// A stage whose output does not require grad (everything up to it is frozen) has no backward: I, W and B do nothing,
/// and it neither receives nor sends gradients. Its neighbour learns this from the header of the activations. A trained
/// stage whose loss does not depend on its input sends zeros.
///
/// Errors. run() rethrows a stage's exception with its position in front: "pipeline: stage 2, micro-batch 3 (2F3):
/// ...", as Error (InputError stays InputError); other types derived from Error are rethrown unchanged. A failed batch
/// leaves messages in flight: later calls of run() throw.
class PipelineExecutor {
 public:
  /// Throws InputError when `back` is missing but needed.
  explicit PipelineExecutor(PipelineOptions options);
  ~PipelineExecutor();
  PipelineExecutor(const PipelineExecutor&) = delete;
  PipelineExecutor& operator=(const PipelineExecutor&) = delete;

  /// Runs one batch by `schedule`, which must pass find_problem() (layout/schedule/check.h) and consists of
  /// computations, with or without messages. Without any backward it runs without grad. Returns the losses by
  /// micro-batch (detached) on the rank of the last stage, and nothing elsewhere. Collective over the group. The plan
  /// for a schedule is computed once; the last few are cached.
  std::vector<at::Tensor> run(const layout::schedule::Schedule& schedule);

  /// Runs only this rank's computations of such a batch, to learn whether it fits into memory: received tensors are
  /// replaced by zeros of the announced sizes (PipelineOptions::sizes), fp32 activations, and nothing is sent.
  /// Collective only if the stages are. Exceptions of a stage are passed through unchanged.
  void rehearse(const layout::schedule::Schedule& schedule);

  /// Times of the last batch's computations and of its waits for receives, in order; in seconds since its start.
  const std::vector<layout::schedule::TimedAction>& measured() const { return measured_; }

  /// Computations of the last batch whose result contains a NaN or an infinity, in order. The result is what F passes
  /// on, or the loss; or the gradient that I or B sends back.
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
  std::vector<std::unique_ptr<Plan>> plans_;  // newest first
  std::vector<layout::schedule::TimedAction> measured_;
  std::vector<std::pair<layout::schedule::Action, at::Tensor>> sums_;  // sum of each result; see not_finite()
  std::int64_t begin_ns_ = 0;
  bool failed_ = false;
};

}  // namespace tessera::parallel
