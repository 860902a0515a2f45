#pragma once
/// \file
/// parallel/: parallelism applied from outside the module. This header: data parallelism around any unmodified
/// torch::nn::Module.

#include <torch/nn/module.h>

#include <tessera/comm/group.h>
#include <tessera/parallel/fully_shard.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// The arguments of PyTorch's DistributedDataParallel that apply here.
struct DdpOptions {
  comm::Group group = {};      ///< empty: all ranks of world()
  double first_bucket_mb = 1;  ///< MiB; small, so that communication starts early
  double bucket_mb = 25;       ///< MiB
  /// Reduction over ranks: mean or sum. The Trainer uses sum and scales its loss.
  comm::Reduction reduction = comm::Reduction::mean;
  /// false: a parameter without a gradient is an error that names it; true: it is tolerated.
  bool find_unused_parameters = false;
  /// Broadcast rank 0's buffers (BatchNorm statistics) at construction and after each reduction.
  bool broadcast_buffers = true;
  /// V > 0: fixed order (docs/strategies.md): weights, norms and losses are bitwise identical for every number of ranks
  /// that divides V. A step is V micro-batches of equal size. The k-th backward of rank r computes micro-batch k *
  /// ranks + r, so each rank runs V / ranks backward passes between zero_grad() and the optimizer's step. Their
  /// gradients are added in micro-batch order (mean: each is divided by V first). no_sync() is refused; parameters must
  /// be fp32 or fp64. The caller must use one thread per rank and key random numbers by step and micro-batch.
  std::int64_t logical_shards = 0;
};

/// Makes `module` data-parallel: every rank takes rank 0's weights and buffers (verified by hash), gradients are stored
/// in flat buckets that are reduced while backward is still running, and after a plain `loss.backward()` every
/// parameter's grad() holds the reduced gradient. The module is not modified and must outlive this object. One backward
/// at a time.
///
///   tessera::init();
///   MyModel model;
///   tessera::Ddp ddp(*model);
///   torch::optim::SGD optimizer(model->parameters(), 0.01);
///   for (...) { optimizer.zero_grad(); loss(model->forward(x), y).backward(); optimizer.step(); }
///
/// - Construction is collective, and so is every backward outside no_sync(). Errors that concern several ranks are
///   thrown on all of them with the same text.
/// - requires_grad is read at construction: frozen parameters are broadcast and never reduced. Tied parameters count
///   once.
/// - find_unused_parameters: a parameter that no rank used keeps its grad() (undefined after zero_grad); one that some
///   ranks used is reduced with zeros from the others.
/// - After a failed backward all gradients are undefined. If it failed on every rank, the next backward starts from a
/// clean state. Otherwise the ranks are out of step: end the process, and the others get an Error that names the
/// collective.
/// - A second backward without zero_grad() adds its reduced gradient to the existing one, as in a single process.
/// - backward(create_graph = true) is refused; torch::autograd::grad works but its results are not reduced.
class Ddp {
 public:
  /// Throws Error when the ranks' modules differ, InputError when nothing is trainable or a parameter is not on the
  /// group's device.
  explicit Ddp(torch::nn::Module& module, DdpOptions options = {});
  ~Ddp();
  Ddp(Ddp&&) noexcept;

  /// While the guard exists, backward accumulates locally and reduces nothing. The first backward after it reduces the
  /// sum.
  class NoSync {
   public:
    explicit NoSync(Ddp& ddp);  ///< throws InputError with logical_shards
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Sharded::NoSync pause_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Makes every gradient undefined, as torch's zero_grad() does: the next backward then moves its gradients in, which
  /// is cheaper than adding them to zeros.
  void zero_grad();
  /// Trainable parameters with their names, in registration order; tied ones appear once.
  const std::vector<std::pair<std::string, at::Tensor>>& parameters() const;
  /// Returns the global gradient norm (L2) and scales the gradients in place when it exceeds max_norm (<= 0: never).
  /// Call after backward.
  double clip_grad_norm(double max_norm);
  /// Throws Error that names the first parameter and rank whose bits differ from rank 0's. Collective.
  void check_replicas() const;
  /// Parameter names per bucket, in the order of reduction (set by the first backward). For reports and tests.
  std::vector<std::vector<std::string>> buckets() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
