#pragma once
/// \file
/// Shrinks the tensors that autograd keeps between forward and backward, or stores them elsewhere. A policy decides per
/// tensor; scopes of policies nest per thread. Checkpointing (checkpoint_activations.h) is also a policy.
///
///   { tessera::OffloadActivations off({.to = "/nvme"}); loss = net->forward(x).sum(); }
///   loss.backward();
///
///   tessera::OffloadActivations off({.to = "/nvme"});
///   tessera::CompressActivations small({.to = tessera::ActivationFormat::bf16});  // compressed first, then to disk
///
/// Parameters - leaves that require grad, views of them, tensors that a sharding engine manages - are never packed.
/// Engines need no changes; plain backward(), retain_graph and double backward work.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/autograd/autograd_engine.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

/// A policy's replacement for a tensor.
class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  /// Restores the tensor: sizes, dtype and device as packed. Called once per use (several with retain_graph), on any
  /// thread, but not concurrently.
  virtual at::Tensor unpack() = 0;
};

/// Bytes that a policy packed. Thread-safe to read at any time.
struct SavedBytes {
  std::int64_t tensors = 0;      ///< packed so far
  std::int64_t original = 0;     ///< bytes of those tensors
  std::int64_t packed = 0;       ///< bytes currently kept instead of them
  std::int64_t packed_peak = 0;  ///< peak of `packed`
};

/// Decides how the tensors that autograd saves for backward are stored.
class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  /// `tensor` shares the saved tensor's memory, has no autograd history and is not a parameter. nullptr passes it to
  /// the next outer policy of the thread (without one it is kept unchanged). Runs without grad mode and with only the
  /// outer policies in force, so that tensors it keeps in a parallel::SavedTensor go through those. An exception
  /// propagates out of the operation that saves. Called from one thread at a time, unless the same policy is used by
  /// scopes of several threads.
  virtual std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) = 0;
  /// All zero for a policy that does not count bytes.
  virtual SavedBytes bytes() const { return {}; }
};

/// Applies the policy to the tensors that the calling thread saves while the scope exists. Packed tensors keep the
/// policy's memory alive as needed; neither scope nor policy need outlive them. Destroy it on its thread, usually in
/// reverse order of construction, though any order works.
class SavedTensors {
 public:
  /// While the scope exists, `policy` is asked first, then the enclosing scopes.
  explicit SavedTensors(std::shared_ptr<SavedTensorPolicy> policy);
  ~SavedTensors();
  SavedTensors(const SavedTensors&) = delete;
  SavedTensors& operator=(const SavedTensors&) = delete;

 private:
  std::shared_ptr<SavedTensorPolicy> policy_;
};

/// Whether policies never see `tensor`: it is a leaf that requires grad, a view of one, or a managed parameter.
bool is_parameter(const at::Tensor& tensor);

/// A tensor kept with its version: reading it after an in-place change throws as LibTorch does (LibTorch itself stops
/// checking once hooks are in force).
class Versioned {
 public:
  Versioned() = default;
  /// `tensor` must have no autograd history or be a leaf.
  explicit Versioned(at::Tensor tensor);
  /// Throws Error.
  const at::Tensor& get() const;

 private:
  at::Tensor tensor_;
  std::uint32_t version_ = 0;
};

}  // namespace tessera::parallel

namespace tessera {

/// Destination and selection of offloaded saved tensors.
struct OffloadOptions {
  /// A folder: stores tensors in one unlinked file in it, which disappears with the last tensor. "host": device tensors
  /// are moved to (pinned) host memory, CPU tensors stay.
  std::string to = "host";
  std::int64_t min_bytes = 64 << 10;  ///< smaller tensors stay
  /// Tensors whose memory stays allocated anyway (frozen parameters, buffers, inputs): tensors that share storage with
  /// them are not copied.
  std::vector<at::Tensor> keep = {};
};

/// While it exists, tensors that the calling thread's operations save are written to `to` and read back when backward
/// needs them. Gradients are bitwise the same. A tensor saved by several operations is written once. Writing and
/// reading happen on the calling thread (the kernel's page cache writes in the background); an I/O error is an Error
/// that names the folder.
class OffloadActivations {
 public:
  explicit OffloadActivations(const OffloadOptions& options);  ///< throws InputError if `to` cannot be used
  ~OffloadActivations();
  parallel::SavedBytes bytes() const;  ///< offloaded so far

 private:
  std::shared_ptr<parallel::SavedTensorPolicy> policy_;
  std::unique_ptr<parallel::SavedTensors> scope_;
};

/// Storage format of saved tensors.
enum class ActivationFormat {
  bf16,  ///< relative error per element at most 2^-9
  int8,  ///< blocks of 128 elements with one fp32 scale: error per element at most 1/254 of its block's largest
         ///< magnitude
};

/// Selection of the saved tensors that are stored in fewer bits.
struct CompressOptions {
  ActivationFormat to = ActivationFormat::bf16;  ///< the storage format
  std::int64_t min_bytes = 64 << 10;             ///< smaller tensors stay
  /// Selects among the tensors that qualify; empty: all.
  std::function<bool(const at::Tensor&)> only = {};
};

/// While it exists, fp32 (and, for int8, bf16) tensors that the calling thread's operations save are stored in fewer
/// bytes. Gradients change by rounding; forward does not. A tensor saved by several operations is compressed once.
class CompressActivations {
 public:
  explicit CompressActivations(const CompressOptions& options);  ///< takes effect at once
  ~CompressActivations();
  parallel::SavedBytes bytes() const;  ///< bytes of the compressed tensors

 private:
  std::shared_ptr<parallel::SavedTensorPolicy> policy_;
  std::unique_ptr<parallel::SavedTensors> scope_;
};

}  // namespace tessera

namespace tessera::parallel {

/// The policies themselves, to be used beyond one scope.
std::shared_ptr<SavedTensorPolicy> offload_policy(const OffloadOptions& options);
std::shared_ptr<SavedTensorPolicy> compress_policy(const CompressOptions& options);
/// Keeps every tensor unchanged and counts: `packed` is the bytes of distinct memory held by activations. For tests and
/// reports.
std::shared_ptr<SavedTensorPolicy> counting_policy();

}  // namespace tessera::parallel
