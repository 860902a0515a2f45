#pragma once
/// \file
/// What DataParallel stands on: replicas of one module, run at the same time, with one node of autograd around them.

#include <torch/nn/module.h>

#include <ATen/core/Tensor.h>

#include <tessera/parallel/replicas/pieces.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tessera::parallel {

/// How many replicas of a module, and where.
struct DataParallelOptions {
  /// 0: one per device; on the CPU as many as LibTorch has intra-op threads (at::get_num_threads()). 1: the module
  /// itself on the calling thread, as if it were called directly.
  int replicas = 0;
  /// Intra-op threads of each team, on the CPU. 0: the caller's shared out, at least 1.
  int threads_per_replica = 0;
  /// Where the replicas compute; the first holds the module. Empty: all on the module's device.
  std::vector<c10::Device> devices = {};
  /// Where outputs are gathered; empty: the first device.
  std::optional<c10::Device> output_device = {};
  /// Makes another module like the first (its values do not matter). Called replicas - 1 times, at construction,
  /// without memory for parameters. For modules that keep state of their own in forward, and for devices when there is
  /// no clone().
  std::function<std::shared_ptr<torch::nn::Module>()> make = {};
};

/// Rows per part: ceil(rows / parts) each, the last one fewer, empty ones left out; {0} for no rows.
std::vector<std::int64_t> chunk_rows(std::int64_t rows, int parts);

/// The mean over all rows, 0-dimensional, of means over the rows of each part: sum of per_replica[r] * rows[r] / rows.
/// `per_replica` [R] is what a call with `rows` rows on `replicas` replicas returns. Throws Error when R does not fit.
at::Tensor mean_over_rows(const at::Tensor& per_replica, std::int64_t rows, int replicas);

/// Replicas of one module in one process.
class ReplicaSet {
 public:
  /// Throws InputError for options that do not fit.
  ReplicaSet(std::shared_ptr<torch::nn::Module> module, DataParallelOptions options);
  ~ReplicaSet();
  ReplicaSet(ReplicaSet&&) noexcept;

  /// What a replica does: called on its team, with its number, module and part of the inputs; returns its output
  /// tensors, which must be as many on every replica, defined or not on all of them alike.
  using Body = std::function<std::vector<at::Tensor>(int replica, torch::nn::Module& module, pieces::Part& part)>;
  /// The outputs, gathered and differentiable.
  std::vector<at::Tensor> run(const pieces::Collected& inputs, const Body& body);

  int size() const;                 ///< replicas; 1: the module itself, on the caller's thread
  int threads_per_replica() const;  ///< threads of its intra-op pool
  void refresh();                   ///< as DataParallel::refresh()

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace tessera::parallel
