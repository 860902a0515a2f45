#pragma once
/// \file
/// comm/: groups of ranks, collectives, the record of every collective, backends. This header: the handle everyone
/// uses.

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

/// How the ranks' values are combined, element by element; mean: the sum, divided once by the number of ranks.
enum class Reduction { sum, mean, min, max, product };

class Backend;  // one implementation per transport: backend.h
class Pending;  // what a backend returns for a started collective: backend.h

/// A started collective. Copyable handle; the tensors it works on are kept alive until it is done.
class Work {
 public:
  Work() = default;                                                                  ///< already done
  explicit Work(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}  ///< nullptr: already done
  /// Blocks until the result is in the output tensor. A failure (peer died, timeout, mismatch) throws tessera::Error
  /// that names the collective, the group and the rank. Waiting twice is fine. CUDA: the result is ordered on the
  /// current stream.
  void wait();
  /// True when wait() will not block. The result is in the output only after wait(), which may still convert or divide
  /// it.
  bool done() const;

 private:
  std::shared_ptr<Pending> pending_;
};

/// A cheap copyable handle on a group of ranks. Collectives are started in program order, the same on every rank, and
/// run asynchronously: `group.all_reduce(t).wait()` is the blocking form. Tensors must be contiguous and on device().
/// Output tensors are written in place. Sizes: n = number of elements of the smaller tensor, R = size().
/// Half-precision reductions accumulate in fp32; a mean is the sum divided once, in that type, and is not for integers.
/// Any dtype can be moved; floating-point types and (u)int8, int32, int64 can be reduced. Tensors of no elements are
/// fine. Autograd does not see collectives: parameters may be passed as they are. Errors found before anything is sent
/// throw InputError. Not thread-safe: one thread per group starts collectives.
class Group {
 public:
  Group() = default;
  explicit Group(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}  ///< nullptr: the empty Group

  /// Uses a process group that the caller already has (LibTorch applications); its accelerator backend if it has one.
  /// It is kept alive by the Group, and the caller must not start collectives on it in another order than other ranks.
  static Group adopt(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::string& name = "adopted");

  explicit operator bool() const { return backend_ != nullptr; }  ///< false: the empty Group; using it throws
  int rank() const;                                               ///< this process's place in it, from 0
  int size() const;                                               ///< R, the number of ranks
  const std::string& name() const;                                ///< what errors and the record call it
  const std::string& backend() const;        ///< its name, to be shown: what it can do is asked of capabilities()
  const Capabilities& capabilities() const;  ///< what its backend can do
  c10::Device device() const;                ///< where tensors must be
  /// The same ranks for tensors of the host: numbers that the host needs do not wait for the device's work then. The
  /// group itself if it works on the host, or was adopted. Collective at its first call.
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
  /// Fixed order: accumulator [n], the same on every rank, becomes (((accumulator + x_0) + x_1) + ...) + x_{R-1}, where
  /// x_r is rank r's input [n]. Micro-batch i = k R + r being input of rank r in call k, the calls of a step add the
  /// micro-batches in their order: the same bits for every R (docs/strategies.md). dtype: one that can be reduced, of
  /// both; bf16 and fp16 inputs have an fp32 accumulator.
  [[nodiscard]] Work accumulate(at::Tensor accumulator, at::Tensor input) const;
  /// As above with input [R*n]: accumulator [n] of rank r gets part r of every rank's input.
  [[nodiscard]] Work accumulate_scatter(at::Tensor accumulator, at::Tensor input) const;
  /// Splits count elements along dimension 0 per peer; empty: equal parts.
  [[nodiscard]] Work all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits = {},
                                std::vector<std::int64_t> input_splits = {}) const;
  /// Messages between two ranks match by tag (>= 0; ignored by nccl), and in order for one tag.
  [[nodiscard]] Work send(at::Tensor tensor, int destination, int tag = 0) const;
  [[nodiscard]] Work recv(at::Tensor tensor, int source, int tag = 0) const;
  [[nodiscard]] Work barrier() const;  ///< done when every rank has come to it

 private:
  std::shared_ptr<Backend> backend_;
};

}  // namespace tessera::comm
