#pragma once
/// \file
/// Accumulates weight gradients into those of earlier backward passes without a temporary tensor (gradient accumulation
/// fusion in Megatron-LM): for a linear map the product is added directly to the weight's grad(), for a table only the
/// rows of tokens that occurred are changed.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// During its lifetime, backward passes on this thread may add to grad() directly where the difference cannot be
/// observed: for a leaf that already has a gradient and no hook on the new part, in an ordinary backward() that neither
/// builds a graph nor asks for the gradients of selected inputs only. Sums are rounded in a different order than
/// autograd's (which computes each part first). Not while another thread runs a backward through the same parameters.
/// For tables, the forward pass must also be inside the scope. Nests.
class AccumulateInPlace {
 public:
  AccumulateInPlace();
  ~AccumulateInPlace();
  AccumulateInPlace(const AccumulateInPlace&) = delete;
  AccumulateInPlace& operator=(const AccumulateInPlace&) = delete;
  static bool active();
};

/// For backward functions: grad() of `parameter`, contiguous, if a part may be added to it; the function then returns
/// no gradient for it. Otherwise undefined.
at::Tensor gradient_to_add_to(const at::Tensor& parameter);

}  // namespace tessera::nn
