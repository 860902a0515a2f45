#pragma once
/// \file
/// The core of DataParallel: replicas of one module, run concurrently, behind one autograd node.

#include <torch/nn/module.h>

#include <ATen/core/Tensor.h>

#include <tessera/parallel/replicas/pieces.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tessera::parallel {

/// Number of replicas of a module, and their devices.
struct DataParallelOptions {
  /// 0: one per device; on the CPU one per intra-op thread of LibTorch (at::get_num_threads()). 1: the module itself on
  /// the calling thread, as if it were called directly.
  int replicas = 0;
  /// Intra-op threads of each team, on the CPU. 0: the caller's threads divided among the teams, at least 1.
  int threads_per_replica = 0;
  /// The replicas' devices; the first holds the module. Empty: all on the module's device.
  std::vector<c10::Device> devices = {};
  /// The device that receives the outputs; empty: the first device.
  std::optional<c10::Device> output_device = {};
  /// Creates another module like the first (its values do not matter). Called replicas - 1 times, at construction,
  /// without memory for parameters. For modules that keep their own state in forward, and for devices when the module
  /// has no clone().
  std::function<std::shared_ptr<torch::nn::Module>()> make = {};
};

/// Rows per part: ceil(rows / parts) each, possibly fewer in the last part; no part is empty. {0} for no rows.
std::vector<std::int64_t> chunk_rows(std::int64_t rows, int parts);

/// Mean over all rows, 0-dimensional, from the means over each part's rows: sum of per_replica[r] * rows[r] / rows.
/// `per_replica` [R] is the result of a call with `rows` rows on `replicas` replicas. Throws Error when R does not fit.
at::Tensor mean_over_rows(const at::Tensor& per_replica, std::int64_t rows, int replicas);

/// Replicas of one module in one process.
class ReplicaSet {
 public:
  /// Throws InputError for options that do not fit.
  ReplicaSet(std::shared_ptr<torch::nn::Module> module, DataParallelOptions options);
  ~ReplicaSet();
  ReplicaSet(ReplicaSet&&) noexcept;

  /// One replica's work: called on its team with its number, module and part of the inputs; returns its output tensors.
  /// Their number, and which of them are defined, must be the same on every replica.
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
