#pragma once
/// \file
/// Pipeline parallelism for somebody's own module: a torch::nn::Sequential, or any module as a list of named layers.
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

/// Where the chain of layers is cut in stages.
struct PipelineCut {
  enum class Kind { layers, parameters, costs, measured, before };  ///< by what, see the makers below
  Kind kind = Kind::parameters;                                     ///< which of the members below count
  std::vector<double> costs_of_layers = {};                         ///< one for each layer
  at::Tensor sample = {};                                           ///< the inputs of a micro-batch
  std::vector<std::string> first_layers = {};                       ///< by stage, without the first

  /// As many layers for each stage as can be.
  static PipelineCut by_layers() { return {.kind = Kind::layers}; }
  /// The rank with the most parameters has as few as can be (layout::cut_by_cost).
  static PipelineCut by_parameters() { return {.kind = Kind::parameters}; }
  /// The same for costs in any unit, one per layer.
  static PipelineCut by_costs(std::vector<double> costs) {
    return {.kind = Kind::costs, .costs_of_layers = std::move(costs)};
  }
  /// The same for what forward and backward of each layer take here, for a micro-batch of inputs like `sample`, which
  /// every rank gives. Ranks measure a part of the layers each, one after another; of a deferred module each builds
  /// that part. Random states and buffers are put back. Takes up to a second and a half per layer.
  static PipelineCut by_measured(at::Tensor sample) { return {.kind = Kind::measured, .sample = std::move(sample)}; }
  /// The names of the first layers of every stage but the first.
  static PipelineCut before(std::vector<std::string> names) {
    return {.kind = Kind::before, .first_layers = std::move(names)};
  }
};

/// How a module becomes a pipeline.
struct PipelineParallelOptions {
  comm::Group group = {};  ///< the ranks of the pipeline; empty: all of world()
  /// A second group of the same ranks, where messages between two ranks are done in the order in which both start them
  /// (nccl): parallel::PipelineOptions::back.
  comm::Group back = {};
  /// A row of layout/schedule/table.h ("1f1b", "zbv", "ScheduleInterleaved1F1B", ...), or a file of a schedule.
  std::string schedule = "1f1b";
  int micro_batches = 0;                           ///< per batch; 0: as many as ranks, or the file's
  int stages_per_rank = 0;                         ///< 0: the fewest that the schedule takes
  PipelineCut cut = PipelineCut::by_parameters();  ///< where each stage begins
  /// What is minimised: of the last layer's output and the targets of a micro-batch, one element. Only the rank of the
  /// last stage calls it.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> loss = {};
  /// How `loss` treats the rows of a micro-batch, and so how those of micro-batches are added up: mean (each is weighed
  /// by its part of the batch's rows) or sum.
  comm::Reduction loss_reduction = comm::Reduction::mean;
  /// Micro-batches of a batch may differ in sizes. Costs a small message more for each.
  bool variable_sizes = false;
  /// With attach() and a strategy that shards parameters. per_micro_batch: as without a pipeline, units are gathered
  /// for each pass that needs them. per_batch: a stage's parameters are whole from its first forward to its last
  /// backward in a batch, so that each is gathered once in place of up to twice per micro-batch; they cost their memory
  /// meanwhile.
  layout::schedule::Gathering gathering = layout::schedule::Gathering::per_micro_batch;
};

/// One layer of a module that is no Sequential.
struct PipelineLayer {
  /// What it is called in errors and by PipelineCut::before(): unique. "blocks.0"
  std::string name;
  /// From the output of the layer before (of the first: the inputs of a micro-batch) to its own: one dense tensor each.
  std::function<at::Tensor(const at::Tensor&)> forward;
  /// The registered modules, or single parameters, that it uses, by their dotted names; empty: the one called `name`. A
  /// module that several layers use stays with every rank that has one of them.
  std::vector<std::string> modules = {};
};

/// What a stage is.
struct PipelineStageRow {
  int rank = 0;                          ///< in the pipeline's group
  std::vector<std::string> layers = {};  ///< may be empty: what comes in goes on
  std::int64_t parameters = 0;           ///< elements
  double cost = 0;                       ///< in the unit of the cut
};

/// This rank's stages of a module, and batches through all of them. What a module may do: docs/parallelism.md.
///
/// - Every rank constructs the same module. Layers of other ranks are let go in the constructor: they leave the tree,
///   their memory is freed, and operators that receive their parameters throw. What stays keeps its names, so
///   optimizers (made afterwards), tessera::Sharded, checkpoints and module->train() take the module as it is then.
/// - Every micro-batch goes through the layers by itself: losses and gradients are those of accumulation over the
///   micro-batches in one process, to the bit where nothing is tied between ranks.
/// - A parameter that layers of several ranks have in common (registered twice) is held by each; its gradients are
///   added in the order of the stages after each batch, so that all step alike.
/// - Between stages one tensor travels. Inside a stage a Sequential may hand on what it likes.
///
/// Not thread-safe. Calls are collective over the group; after an error on one rank the others fail when it has ended.
class PipelineParallel {
 public:
  /// `sequential` must outlive this. Throws InputError, the same on every rank, for schedules and cuts that do not fit
  /// and for modules that differ between ranks.
  explicit PipelineParallel(torch::nn::SequentialImpl& sequential, PipelineParallelOptions options = {});
  /// Layers in the order of the forward pass; every parameter and buffer of `module` must belong to one of them.
  PipelineParallel(torch::nn::Module& module, std::vector<PipelineLayer> layers, PipelineParallelOptions options = {});
  /// An unedited module whose forward, called as `forward`, is a chain: its registered blocks (children, those of lists
  /// one by one) work one after another, and between two of them one tensor is all that later ones need. That is found
  /// out by watching the operators that forward calls with `sample`, the inputs of a micro-batch of any size; blocks
  /// between which more than that passes (skip connections, a block that is used again) become one layer. Each stage
  /// calls the whole forward, in which only its own operators work, so every rank needs the inputs of every batch.
  /// Throws InputError for a forward whose course depends on values, here or when a batch takes another course.
  PipelineParallel(torch::nn::Module& module, std::function<at::Tensor(const at::Tensor&)> forward, at::Tensor sample,
                   PipelineParallelOptions options = {});
  PipelineParallel(PipelineParallel&&) noexcept;
  ~PipelineParallel();

  /// Forward and backward of a batch: gradients are added to what is in grad(). Returns the loss, on every rank.
  /// `inputs` [rows, ...] count on the rank of the first stage, `targets` on that of the last; elsewhere they may be
  /// undefined. Both are cut along dimension 0, evenly: rows must be a multiple of micro_batches, unless
  /// variable_sizes.
  double train_batch(const at::Tensor& inputs, const at::Tensor& targets);
  /// The same with micro-batches that are cut already; rows count for the mean.
  double train_batch(std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets);
  /// The loss without gradients. Modes (train, eval) are the caller's.
  double evaluate_batch(const at::Tensor& inputs, const at::Tensor& targets);
  /// The last layer's output [rows, ...], without gradients; undefined but on the rank of the last stage, or with
  /// `everywhere` on all ranks.
  at::Tensor forward_batch(const at::Tensor& inputs, bool everywhere = false);

  /// From now on a batch's gradients are accumulated in `sharded`, which is around the same module and must outlive
  /// this in its place, and reduced at the batch's end: once, under every strategy. Give it `.stages = group` and
  /// `.held_by_earlier_stage = held_by_earlier_stage()`, so that norms count everything once. Throws InputError for a
  /// gathering that the strategy does not have, and for a tied parameter on more than two ranks.
  void attach(Sharded& sharded);

  /// L2 norm of all stages' gradients, tied ones once; scaled in place when it exceeds max_norm (<= 0: never). With
  /// attach(): Sharded::clip_grad_norm.
  double clip_grad_norm(double max_norm);

  const layout::schedule::Schedule& schedule() const;   ///< the computations of train_batch(), of every rank
  const std::vector<PipelineStageRow>& stages() const;  ///< those of all ranks, in the order of the chain
  /// "zbv, 8 micro-batches; rank 0: 0-2 and 7; rank 1: 3-6"
  std::string describe() const;
  /// Tied parameters that this rank holds, too, by the names that they have everywhere.
  std::vector<std::string> held_by_earlier_stage() const;
  /// When the last batch's computations ran on this rank (parallel::PipelineExecutor::measured).
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
