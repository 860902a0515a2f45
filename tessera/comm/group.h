#pragma once
/// \file
/// comm/: groups of ranks, collectives, the record of every collective, backends. This header: the handle that users
/// call.

#include <ATen/core/Tensor.h>

#include <tessera/layout/backends.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace tessera::comm {

using layout::Capabilities;

/// How the ranks' values are combined, elementwise; mean: the sum, divided once by the number of ranks.
enum class Reduction { sum, mean, min, max, product };

class Backend;  // one implementation per transport: backend.h
class Pending;  // a backend's handle of a started collective: backend.h

/// A started collective. Copyable handle; keeps its tensors alive until it is done.
class Work {
 public:
  Work() = default;                                                                  ///< already done
  explicit Work(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}  ///< nullptr: already done
  /// Blocks until the result is in the output tensor. A failure (dead peer, timeout, mismatch) throws tessera::Error
  /// naming the collective, the group and the rank. May be called again. CUDA: orders the result on the current stream.
  void wait();
  /// True if wait() will not block. The output is valid only after wait(), which may still convert or divide it.
  bool done() const;

 private:
  std::shared_ptr<Pending> pending_;
};

/// A cheap copyable handle of a group of ranks. Collectives must be started in the same program order on every rank and
/// run asynchronously: `group.all_reduce(t).wait()` is the blocking form. Tensors must be contiguous and on device().
/// Output tensors are written in place. Sizes: n = number of elements of the smaller tensor, R = size(). Half-precision
/// reductions accumulate in fp32; a mean is the sum divided once, in that type, and is not available for integers. Any
/// dtype can be moved; floating-point types and (u)int8, int32, int64 can be reduced. Empty tensors are allowed.
/// Collectives bypass autograd: parameters may be passed directly. Errors found before anything is sent throw
/// InputError. Not thread-safe: one thread per group starts collectives.
class Group {
 public:
  Group() = default;
  explicit Group(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}  ///< nullptr: the empty Group

  /// Wraps the caller's own process group (for LibTorch applications), using its accelerator backend if it has one. The
  /// Group keeps it alive. The caller must start its own collectives on it in the same order on every rank.
  static Group adopt(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::string& name = "adopted");

  explicit operator bool() const { return backend_ != nullptr; }  ///< false: the empty Group; using it throws
  int rank() const;                                               ///< this process's rank in the group, from 0
  int size() const;                                               ///< R, the number of ranks
  const std::string& name() const;                                ///< the name in errors and in the record
  const std::string& backend() const;        ///< the backend's name, for display; query capabilities() for features
  const Capabilities& capabilities() const;  ///< features of the backend
  c10::Device device() const;                ///< the device that tensors must be on
  /// The same ranks for host tensors, so that values needed by the host do not wait for the device's queued work.
  /// Returns the group itself if it is already on the host or was adopted. The first call is collective.
  Group host() const;

  /// [n] in place.
  [[nodiscard]] Work broadcast(at::Tensor tensor, int root) const;
  /// [n], result in place on root; the other ranks' tensors keep their values.
  [[nodiscard]] Work reduce(at::Tensor tensor, int root, Reduction op = Reduction::sum) const;
  /// [n] in place.
  [[nodiscard]] Work all_reduce(at::Tensor tensor, Reduction op = Reduction::sum) const;
  /// input [R*n] on root (undefined elsewhere) -> output [n].
  [[nodiscard]] Work scatter(at::Tensor output, at::Tensor input, int root) const;
  /// input [n] -> output [R*n] on root (undefined elsewhere).
  [[nodiscard]] Work gather(at::Tensor output, at::Tensor input, int root) const;
  /// input [n] -> output [R*n]; input may be its own slice of output.
  [[nodiscard]] Work all_gather(at::Tensor output, at::Tensor input) const;
  /// input [R*n] -> output [n]; input keeps its values.
  [[nodiscard]] Work reduce_scatter(at::Tensor output, at::Tensor input, Reduction op = Reduction::sum) const;
  /// Sums in fixed order: accumulator [n], the same on every rank, becomes (((accumulator + x_0) + x_1) + ...) +
  /// x_{R-1}, where x_r is rank r's input [n]. If micro-batch i = k R + r is rank r's input in call k, the calls of a
  /// step add the micro-batches in order: bitwise the same for every R (docs/strategies.md). Both tensors have the same
  /// reducible dtype, except that bf16 and fp16 inputs need an fp32 accumulator.
  [[nodiscard]] Work accumulate(at::Tensor accumulator, at::Tensor input) const;
  /// As above with input [R*n]: rank r's accumulator [n] gets part r of every rank's input.
  [[nodiscard]] Work accumulate_scatter(at::Tensor accumulator, at::Tensor input) const;
  /// Splits are sizes along dimension 0, one per peer; empty: equal parts.
  [[nodiscard]] Work all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits = {},
                                std::vector<std::int64_t> input_splits = {}) const;
  /// Messages between two ranks match by tag (>= 0; ignored by nccl); those with the same tag arrive in order.
  [[nodiscard]] Work send(at::Tensor tensor, int destination, int tag = 0) const;
  [[nodiscard]] Work recv(at::Tensor tensor, int source, int tag = 0) const;
  [[nodiscard]] Work barrier() const;  ///< done when every rank has reached it

 private:
  std::shared_ptr<Backend> backend_;
};

}  // namespace tessera::comm
