#pragma once
/// \file
/// parallel/: parallelism applied from outside. This header: data parallelism around any torch::nn::Module, unedited.

#include <torch/nn/module.h>

#include <tessera/comm/group.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera {

struct DdpOptions {
  comm::Group group;                 ///< empty: all ranks of world()
  double first_bucket_mb = 1;        ///< small, so that communication starts early
  double bucket_mb = 25;
  comm::Reduction reduction = comm::Reduction::mean;  ///< over ranks; the Trainer uses sum and scales its loss
  bool find_unused_parameters = false;  ///< false: a parameter without gradient is an error that names it; true: it is tolerated
  bool broadcast_buffers = true;     ///< rank 0's buffers (BatchNorm statistics) before each forward that follows a reduction
};

/// Makes `module` data-parallel: weights and buffers become rank 0's (checked by hash), gradients live in flat buckets that
/// are reduced while backward still runs, and after a plain `loss.backward()` every parameter's grad() holds the reduced
/// gradient. The module is not edited and must outlive this object. One backward at a time.
class Ddp {
 public:
  explicit Ddp(torch::nn::Module& module, DdpOptions options = {});
  ~Ddp();
  Ddp(Ddp&&) noexcept;

  /// While the guard lives, backward accumulates locally and reduces nothing; the first backward after it reduces the sum.
  class NoSync {
   public:
    explicit NoSync(Ddp& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
   private:
    Ddp& ddp_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Zeroes the flat gradient buckets (cheaper than per-parameter zero_grad; both are correct).
  void zero_grad();
  /// Trainable parameters with their names, tied ones once.
  const std::vector<std::pair<std::string, at::Tensor>>& parameters() const;
  /// Global gradient norm; gradients are scaled in place when it exceeds max_norm. Call after backward.
  double clip_grad_norm(double max_norm);
  /// Throws Error naming the first parameter and rank whose bits differ from rank 0's.
  void check_replicas() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
