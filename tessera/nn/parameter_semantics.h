#pragma once
/// \file
/// A parameter of which this process holds a part (tensor parallelism): the code that cut it defines the meaning of
/// operators on it. Linear maps, tables and the head check here first; for a whole parameter this costs one check of
/// its key set.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <tessera/nn/linear.h>
#include <tessera/nn/linear_cross_entropy.h>

#include <cstdint>

namespace tessera::nn {

/// The dispatch key of cut matrices and tables; unused in LibTorch 2.11, above the managed parameters' (managed_key).
inline constexpr c10::DispatchKey cut_key = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

/// Called on the thread that runs the operator. All ranks that hold parts make the same calls in the same order.
class ParameterSemantics : public c10::BackendMeta {
 public:
  /// As nn::linear.
  virtual at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            WeightLayout layout) const = 0;
  /// As at::embedding. `whole`: the rows of all tokens even if activations are cut along the sequence; call
  /// own_tokens() afterwards.
  virtual at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids, std::int64_t padding_idx,
                               bool whole) const = 0;
  /// The tokens of x [B, T, C] with which this rank continues.
  virtual at::Tensor own_tokens(const at::Tensor& x) const = 0;
  /// Starts a pass with x [B, t, C], which own_tokens() returned in another process (a stage of a pipeline).
  virtual void begin_with(const at::Tensor& x) const = 0;
  /// Index of the first token that own_tokens() returns, out of `tokens`.
  virtual std::int64_t first_token(std::int64_t tokens) const = 0;
  /// Index of the part's first element along `dim`; 0 if the parameter is not cut along it.
  virtual std::int64_t first_along(int dim) const = 0;
  /// Elements of the whole parameter.
  virtual std::int64_t whole_numel() const = 0;
  /// The tokens of all ranks, for consumers that compute the same on every rank.
  virtual at::Tensor all_tokens(const at::Tensor& x) const = 0;
  /// As nn::linear_cross_entropy; `bias` is whole.
  virtual at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                          double scale, const LossOptions& options, const at::Tensor& bias) const = 0;
};

/// The semantics of operators on `parameter`; nullptr if it has none, or while they are being applied.
inline const ParameterSemantics* semantics_of(const at::Tensor& parameter) {
  if (!parameter.defined() || !parameter.key_set().has(cut_key) || c10::impl::tls_is_dispatch_key_excluded(cut_key))
    return nullptr;
  return dynamic_cast<const ParameterSemantics*>(parameter.unsafeGetTensorImpl()->get_backend_meta());
}

/// Elements of the whole parameter, of which this process may hold a part.
inline std::int64_t whole_numel(const at::Tensor& parameter) {
  const auto* const cut = dynamic_cast<const ParameterSemantics*>(parameter.unsafeGetTensorImpl()->get_backend_meta());
  return cut != nullptr ? cut->whole_numel() : parameter.numel();
}

}  // namespace tessera::nn
