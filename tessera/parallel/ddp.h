#pragma once
/// \file
/// parallel/: parallelism applied from outside. This header: data parallelism around any torch::nn::Module, unedited.

#include <torch/nn/module.h>

#include <tessera/comm/group.h>
#include <tessera/parallel/fully_shard.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// The arguments of DistributedDataParallel that have a meaning here.
struct DdpOptions {
  comm::Group group = {};      ///< empty: all ranks of world()
  double first_bucket_mb = 1;  ///< MiB; small, so that communication starts early
  double bucket_mb = 25;       ///< MiB
  /// Over ranks: mean or sum; the Trainer uses sum and scales its loss.
  comm::Reduction reduction = comm::Reduction::mean;
  /// false: a parameter without gradient is an error that names it; true: it is tolerated.
  bool find_unused_parameters = false;
  /// Rank 0's buffers (BatchNorm statistics) for everyone: at construction and after each reduction.
  bool broadcast_buffers = true;
  /// V > 0: fixed order (docs/strategies.md): weights, norms and losses have the same bits for every number of ranks
  /// that divides V. A step is V micro-batches of one size; the k-th backward of rank r computes micro-batch k * ranks
  /// + r, so each rank runs V / ranks backwards between zero_grad() and the optimizer's step. Their gradients are added
  /// in the order of the micro-batches (mean: each divided by V first). no_sync() is refused; parameters are fp32 or
  /// fp64. The rest is the caller's: one thread per rank, random numbers keyed by step and micro-batch.
  std::int64_t logical_shards = 0;
};

/// Makes `module` data-parallel: weights and buffers become rank 0's (checked by hash), gradients live in flat buckets
/// that are reduced while backward still runs, and after a plain `loss.backward()` every parameter's grad() holds the
/// reduced gradient. The module is not edited and must outlive this object. One backward at a time.
///
///   tessera::init();
///   MyModel model;
///   tessera::Ddp ddp(*model);
///   torch::optim::SGD optimizer(model->parameters(), 0.01);
///   for (...) { optimizer.zero_grad(); loss(model->forward(x), y).backward(); optimizer.step(); }
///
/// - Construction is collective, and so is every backward that is not under no_sync(). Errors that concern several
///   ranks come out on all of them with the same text.
/// - requires_grad is read at construction: frozen parameters are broadcast and never reduced. Tied ones count once.
/// - find_unused_parameters: what no rank used keeps its grad() (undefined after zero_grad); what some rank used is
///   reduced with zeros from the others.
/// - After a failed backward all gradients are undefined, and the next one starts afresh, if it failed on every rank.
///   Otherwise the ranks have parted: end the process, and the others get an Error that names the collective.
/// - A second backward without zero_grad() adds its reduced gradient to the present one, as one process would.
/// - backward(create_graph = true) is refused; torch::autograd::grad works and is not reduced.
class Ddp {
 public:
  /// Throws Error when the ranks' modules differ, InputError when nothing is trainable or a parameter is not on the
  /// group's device.
  explicit Ddp(torch::nn::Module& module, DdpOptions options = {});
  ~Ddp();
  Ddp(Ddp&&) noexcept;

  /// While the guard lives, backward accumulates locally and reduces nothing; the first backward after it reduces the
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

  /// Makes every gradient undefined, as torch's zero_grad(): the next backward moves new ones in, which is cheaper than
  /// adding to zeros.
  void zero_grad();
  /// Trainable parameters with their names, in registration order, tied ones once.
  const std::vector<std::pair<std::string, at::Tensor>>& parameters() const;
  /// Global gradient norm (L2); gradients are scaled in place when it exceeds max_norm (<= 0: never). Call after
  /// backward.
  double clip_grad_norm(double max_norm);
  /// Throws Error naming the first parameter and rank whose bits differ from rank 0's. Collective.
  void check_replicas() const;
  /// Names of the parameters in each bucket, in the order of reduction (it follows the first backward). For reports and
  /// tests.
  std::vector<std::vector<std::string>> buckets() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
