#pragma once
/// \file
/// Gradients of weights that join those of earlier backward passes without a tensor in between (Megatron-LM calls it
/// gradient accumulation fusion): of a linear map's weight the product is added to grad() as it is formed, of a table
/// only the rows of tokens that occurred are touched.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// While it lives, backward passes on this thread may add to grad() themselves, where nobody can tell the difference:
/// of a leaf that has a gradient, nobody's hook wants to see the new part, and the pass is an ordinary backward(),
/// which neither builds a graph nor asks for the gradients of chosen inputs only. Sums are rounded in another order
/// than autograd's (which forms each part first). Not while another thread runs a backward through the same parameters.
/// For tables forward must be inside, too. Nests.
class AccumulateInPlace {
 public:
  AccumulateInPlace();
  ~AccumulateInPlace();
  AccumulateInPlace(const AccumulateInPlace&) = delete;
  AccumulateInPlace& operator=(const AccumulateInPlace&) = delete;
  static bool active();
};

/// For backward functions: grad() of `parameter`, contiguous, if a part may be added to it; the function returns no
/// gradient for it then. Undefined: it may not.
at::Tensor gradient_to_add_to(const at::Tensor& parameter);

}  // namespace tessera::nn
