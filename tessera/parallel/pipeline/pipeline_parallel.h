#pragma once
/// \file
/// Pipeline parallelism for a user's own module: a torch::nn::Sequential, or any module as a list of named layers.
///
///   tessera::init();
///   torch::nn::Sequential net(...);                                  // the same on every rank; or tessera::deferred
///   auto pipe = tessera::pipeline(*net, {.schedule = "zbv", .micro_batches = 8, .loss = torch_loss});
///   torch::optim::AdamW optimizer(net->parameters(), 3e-4);          // for this rank's stages
///   for (auto& batch : loader) {
///     optimizer.zero_grad();
///     const double loss = pipe.train_batch(batch.x, batch.y);        // the same on every rank
///     pipe.clip_grad_norm(1.0);
///     optimizer.step();
///   }

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/schedule.h>
#include <tessera/layout/schedule/timing.h>
#include <tessera/parallel/fully_shard.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera {

/// How the chain of layers is cut into stages.
struct PipelineCut {
  enum class Kind { layers, parameters, costs, measured, before };  ///< the criterion; see the factories below
  Kind kind = Kind::parameters;                                     ///< selects which of the members below apply
  std::vector<double> costs_of_layers = {};                         ///< one per layer
  at::Tensor sample = {};                                           ///< the inputs of a micro-batch
  std::vector<std::string> first_layers = {};  ///< first layer of each stage except the first stage

  /// Cuts into stages with as equal numbers of layers as possible.
  static PipelineCut by_layers() { return {.kind = Kind::layers}; }
  /// Minimises the parameters of the rank that has the most (layout::cut_by_cost).
  static PipelineCut by_parameters() { return {.kind = Kind::parameters}; }
  /// The same for costs in any unit, one per layer.
  static PipelineCut by_costs(std::vector<double> costs) {
    return {.kind = Kind::costs, .costs_of_layers = std::move(costs)};
  }
  /// The same for the measured time of each layer's forward and backward on a micro-batch of inputs like `sample`,
  /// which every rank must pass. Each rank measures a part of the layers, one rank after another; of a deferred module
  /// each builds only that part. Random states and buffers are restored. Takes up to a second and a half per layer.
  static PipelineCut by_measured(at::Tensor sample) { return {.kind = Kind::measured, .sample = std::move(sample)}; }
  /// Cuts before the named layers: the first layer of every stage except the first stage.
  static PipelineCut before(std::vector<std::string> names) {
    return {.kind = Kind::before, .first_layers = std::move(names)};
  }
};

/// How a module is turned into a pipeline.
struct PipelineParallelOptions {
  comm::Group group = {};  ///< the ranks of the pipeline; empty: all of world()
  /// A second group of the same ranks; required where messages between two ranks are processed in the order in which
  /// both start them (nccl): parallel::PipelineOptions::back.
  comm::Group back = {};
  /// A row of layout/schedule/table.h ("1f1b", "zbv", "ScheduleInterleaved1F1B", ...), or a schedule file.
  std::string schedule = "1f1b";
  int micro_batches = 0;                           ///< per batch; 0: the number of ranks, or the file's
  int stages_per_rank = 0;                         ///< 0: the fewest that the schedule allows
  PipelineCut cut = PipelineCut::by_parameters();  ///< where each stage begins
  /// Returns the loss (one element) of the last layer's output and the targets of a micro-batch. Only the rank of the
  /// last stage calls it.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> loss = {};
  /// How `loss` combines the rows of a micro-batch, and so how the losses of micro-batches are combined: mean (each
  /// weighted by its share of the batch's rows) or sum.
  comm::Reduction loss_reduction = comm::Reduction::mean;
  /// Allows the micro-batches of a batch to differ in size. Costs one extra small message per micro-batch.
  bool variable_sizes = false;
  /// For attach() and a strategy that shards parameters. per_micro_batch: as without a pipeline, units are gathered for
  /// each pass that needs them. per_batch: a stage's parameters stay whole from its first forward to its last backward
  /// in a batch, so each is gathered once instead of up to twice per micro-batch, at the cost of their memory during
  /// that time.
  layout::schedule::Gathering gathering = layout::schedule::Gathering::per_micro_batch;
};

/// One layer of a module that is not a Sequential.
struct PipelineLayer {
  /// Unique name used in errors and by PipelineCut::before(), such as "blocks.0".
  std::string name;
  /// Maps the previous layer's output (for the first layer: the inputs of a micro-batch) to its own; one dense tensor
  /// each.
  std::function<at::Tensor(const at::Tensor&)> forward;
  /// Dotted names of the registered modules, or single parameters, that it uses; empty: the module called `name`. A
  /// module that several layers use is kept on every rank that has one of them.
  std::vector<std::string> modules = {};
};

/// Description of a stage.
struct PipelineStageRow {
  int rank = 0;                          ///< rank in the pipeline's group
  std::vector<std::string> layers = {};  ///< may be empty: the stage passes its input on
  std::int64_t parameters = 0;           ///< elements
  double cost = 0;                       ///< cost in the unit of the cut
};

/// This rank's stages of a module, and batches through all stages. Requirements on modules: docs/parallelism.md.
///
/// - Every rank constructs the same module. The constructor drops the layers of other ranks: they are removed from the
///   tree, their memory is freed, and operators that receive their parameters throw. Kept layers keep their names, so
///   optimizers (constructed afterwards), tessera::Sharded, checkpoints and module->train() work on the remaining
///   module.
/// - Every micro-batch passes through the layers separately: losses and gradients equal those of accumulation over the
///   micro-batches in one process, bit for bit where nothing is tied between ranks.
/// - A parameter that layers of several ranks share (registered twice) is held by each of them; its gradients are added
///   in stage order after each batch, so that all copies take the same step.
/// - Only one tensor passes between stages. Inside a stage a Sequential may pass on any value.
///
/// Not thread-safe. Calls are collective over the group; after an error on one rank, calls on the others fail once that
/// rank has exited.
class PipelineParallel {
 public:
  /// `sequential` must outlive this object. Throws InputError, the same on every rank, for schedules and cuts that do
  /// not fit and for modules that differ between ranks.
  explicit PipelineParallel(torch::nn::SequentialImpl& sequential, PipelineParallelOptions options = {});
  /// Layers in the order of the forward pass; every parameter and buffer of `module` must belong to one of them.
  PipelineParallel(torch::nn::Module& module, std::vector<PipelineLayer> layers, PipelineParallelOptions options = {});
  /// An unmodified module whose forward, called as `forward`, is a chain: its registered blocks (children; those of
  /// lists one by one) run one after another, and at each boundary between two blocks, the later ones need only one
  /// tensor. This is derived by observing the operators that forward calls with `sample`, the inputs of a micro-batch
  /// of any size; blocks with more tensors between them (skip connections, a reused block) become one layer. Each stage
  /// calls the whole forward but computes only its own operators, so every rank needs the inputs of every batch. Throws
  /// InputError for a forward whose control flow depends on values, here or when it differs for a batch.
  PipelineParallel(torch::nn::Module& module, std::function<at::Tensor(const at::Tensor&)> forward, at::Tensor sample,
                   PipelineParallelOptions options = {});
  PipelineParallel(PipelineParallel&&) noexcept;
  ~PipelineParallel();

  /// Runs forward and backward of a batch: gradients are added to grad(). Returns the loss, on every rank. `inputs`
  /// [rows, ...] are used on the rank of the first stage, `targets` on that of the last; elsewhere they may be
  /// undefined. Both are cut evenly along dimension 0: rows must be a multiple of micro_batches, unless variable_sizes.
  double train_batch(const at::Tensor& inputs, const at::Tensor& targets);
  /// The same for micro-batches that are already cut; the mean is weighted by rows.
  double train_batch(std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets);
  /// The loss, without gradients. The caller sets the modes (train, eval).
  double evaluate_batch(const at::Tensor& inputs, const at::Tensor& targets);
  /// The last layer's output [rows, ...], without gradients; defined only on the rank of the last stage, or with
  /// `everywhere` on all ranks.
  at::Tensor forward_batch(const at::Tensor& inputs, bool everywhere = false);

  /// After this call a batch's gradients are accumulated in `sharded` and reduced at the batch's end: once, under every
  /// strategy. `sharded` must wrap the same module, must outlive this object and must not be moved. Give it `.stages =
  /// group` and `.held_by_earlier_stage = held_by_earlier_stage()`, so that norms count everything once. Throws
  /// InputError for a gathering that the strategy does not support, and for a parameter tied across more than two
  /// ranks.
  void attach(Sharded& sharded);

  /// Returns the L2 norm of all stages' gradients, counting tied ones once; scales them in place when it exceeds
  /// max_norm (<= 0: never). With attach(): Sharded::clip_grad_norm.
  double clip_grad_norm(double max_norm);

  const layout::schedule::Schedule& schedule() const;   ///< the computations of train_batch() on every rank
  const std::vector<PipelineStageRow>& stages() const;  ///< stages of all ranks, in chain order
  /// "zbv, 8 micro-batches; rank 0: 0-2 and 7; rank 1: 3-6"
  std::string describe() const;
  /// Names of the tied parameters that this rank and an earlier stage's rank both hold; the same names on all ranks.
  std::vector<std::string> held_by_earlier_stage() const;
  /// Times of the last batch's computations on this rank (parallel::PipelineExecutor::measured).
  const std::vector<layout::schedule::TimedAction>& measured() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// PipelineParallel(module, ...).
inline PipelineParallel pipeline(torch::nn::SequentialImpl& sequential, PipelineParallelOptions options = {}) {
  return PipelineParallel(sequential, std::move(options));
}
inline PipelineParallel pipeline(torch::nn::Module& module, std::vector<PipelineLayer> layers,
                                 PipelineParallelOptions options = {}) {
  return {module, std::move(layers), std::move(options)};
}

/// The same for a module with `at::Tensor forward(at::Tensor)`.
template <class Module>
  requires std::is_base_of_v<torch::nn::Module, Module>
PipelineParallel pipeline(Module& module, at::Tensor sample, PipelineParallelOptions options = {}) {
  return {module, [&module](const at::Tensor& inputs) { return module.forward(inputs); }, std::move(sample),
          std::move(options)};
}

}  // namespace tessera
