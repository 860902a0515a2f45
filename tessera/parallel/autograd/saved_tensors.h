#pragma once
/// \file
/// What autograd keeps between forward and backward, replaced by something smaller or kept elsewhere. A policy decides
/// per tensor; scopes of policies nest per thread. Checkpointing (checkpoint_activations.h) is such a policy, too.
///
///   { tessera::OffloadActivations off({.to = "/nvme"}); loss = net->forward(x).sum(); }
///   loss.backward();
///
///   tessera::OffloadActivations off({.to = "/nvme"});                              // compressed first, and that to
///   disk tessera::CompressActivations small({.to = tessera::ActivationFormat::bf16});
///
/// Parameters - leaves that require grad, views of them, tensors that a sharding engine manages - are never packed.
/// No engine has to know; plain backward(), retain_graph and double backward work.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/autograd/autograd_engine.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

/// What a policy keeps instead of a tensor.
class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  /// The tensor again: sizes, dtype and device as packed. Called once per use (several with retain_graph), on any
  /// thread, but not concurrently.
  virtual at::Tensor unpack() = 0;
};

/// Bytes that passed through a policy. Thread-safe to read at any time.
struct SavedBytes {
  std::int64_t tensors = 0;      ///< packed so far
  std::int64_t original = 0;     ///< bytes of those tensors
  std::int64_t packed = 0;       ///< bytes kept instead of them, now
  std::int64_t packed_peak = 0;  ///< the most
};

/// What becomes of the tensors that autograd saves for backward.
class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  /// `tensor` shares the saved tensor's memory, has no autograd history and is not a parameter. nullptr leaves it to
  /// the next outer policy of the thread (to nobody: it is kept as it is). Runs without grad mode and with only the
  /// outer policies in force, so that what it keeps in a parallel::SavedTensor goes through those. An exception comes
  /// out of the operation that saves. Of one thread at a time, unless the same policy is used by scopes of several.
  virtual std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) = 0;
  /// Zeros for a policy that does not count.
  virtual SavedBytes bytes() const { return {}; }
};

/// The policy applies to what the calling thread saves while the scope lives. What was packed keeps the policy's memory
/// alive as it needs to; neither scope nor policy need outlive it. Destroy it on its thread; usually in reverse order
/// of construction, but any order is fine.
class SavedTensors {
 public:
  /// `policy` is asked first from here on, then the scopes around this one.
  explicit SavedTensors(std::shared_ptr<SavedTensorPolicy> policy);
  ~SavedTensors();
  SavedTensors(const SavedTensors&) = delete;
  SavedTensors& operator=(const SavedTensors&) = delete;

 private:
  std::shared_ptr<SavedTensorPolicy> policy_;
};

/// True for what policies never see: a leaf that requires grad, a view of one, a managed parameter.
bool is_parameter(const at::Tensor& tensor);

/// A tensor kept with its version: reading it after an in-place change throws as LibTorch does (which stops checking
/// once hooks are in force).
class Versioned {
 public:
  Versioned() = default;
  /// `tensor` without autograd history, or a leaf.
  explicit Versioned(at::Tensor tensor);
  /// Throws Error.
  const at::Tensor& get() const;

 private:
  at::Tensor tensor_;
  std::uint32_t version_ = 0;
};

}  // namespace tessera::parallel

namespace tessera {

/// Which saved tensors go to the host.
struct OffloadOptions {
  /// A folder: one unlinked file in it, gone with the last tensor. "host": tensors of devices go to host memory
  /// (pinned), those of the CPU stay.
  std::string to = "host";
  std::int64_t min_bytes = 64 << 10;  ///< smaller tensors stay
  /// Tensors whose memory stays anyway (frozen parameters, buffers, inputs): what shares storage with them is not
  /// copied.
  std::vector<at::Tensor> keep = {};
};

/// While it lives, what the calling thread's operations save is written elsewhere and read when backward needs it.
/// Bitwise the same gradients. A tensor saved by several operations is written once. Writing and reading happen on the
/// calling thread (the kernel's page cache writes behind); an I/O error is an Error that names the folder.
class OffloadActivations {
 public:
  explicit OffloadActivations(const OffloadOptions& options);  ///< throws InputError for a place that cannot be used
  ~OffloadActivations();
  parallel::SavedBytes bytes() const;  ///< what went to the place so far

 private:
  std::shared_ptr<parallel::SavedTensorPolicy> policy_;
  std::unique_ptr<parallel::SavedTensors> scope_;
};

/// How saved tensors are stored meanwhile.
enum class ActivationFormat {
  bf16,  ///< relative error of an element at most 2^-9
  int8,  ///< blocks of 128 elements with one fp32 scale: error of an element at most 1/254 of its block's largest
};

/// Which saved tensors are stored in fewer bits.
struct CompressOptions {
  ActivationFormat to = ActivationFormat::bf16;  ///< what they are stored as
  std::int64_t min_bytes = 64 << 10;             ///< smaller tensors stay
  /// Which of the tensors that qualify are compressed; empty: all.
  std::function<bool(const at::Tensor&)> only = {};
};

/// While it lives, fp32 (and, for int8, bf16) tensors that the calling thread's operations save are kept in fewer
/// bytes. Gradients change by rounding; forward does not. A tensor saved by several operations is compressed once.
class CompressActivations {
 public:
  explicit CompressActivations(const CompressOptions& options);  ///< in force from here on
  ~CompressActivations();
  parallel::SavedBytes bytes() const;  ///< counts tensors that were compressed

 private:
  std::shared_ptr<parallel::SavedTensorPolicy> policy_;
  std::unique_ptr<parallel::SavedTensors> scope_;
};

}  // namespace tessera

namespace tessera::parallel {

/// The policies themselves, for a longer life than a scope.
std::shared_ptr<SavedTensorPolicy> offload_policy(const OffloadOptions& options);
std::shared_ptr<SavedTensorPolicy> compress_policy(const CompressOptions& options);
/// Keeps every tensor as it is and counts: `packed` is bytes of distinct memory that activations hold. For tests and
/// reports.
std::shared_ptr<SavedTensorPolicy> counting_policy();

}  // namespace tessera::parallel
