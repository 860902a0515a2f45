#pragma once
/// \file
/// nn/libtorch/: differences between the LibTorch releases that Tessera is built on (tools/torch/). This header: the
/// only file of the project with conditions on LibTorch's version. Internal.

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <utility>

#if TORCH_VERSION_MAJOR != 2 || (TORCH_VERSION_MINOR != 11 && TORCH_VERSION_MINOR != 15)
#error "Tessera is built on LibTorch 2.11 or 2.15"
#endif

namespace tessera::nn {

#if TORCH_VERSION_MINOR >= 15
/// Shared owner of a backward function (or of a class derived from it).
template <class N = torch::autograd::Node>
using NodePointer = c10::intrusive_ptr<N>;

/// Makes a backward function. A long chain of them is released without recursion.
template <class N, class... Arguments>
NodePointer<N> make_node(Arguments&&... arguments) {
  return c10::make_intrusive<N>(std::forward<Arguments>(arguments)...);
}

/// Makes backward form a new AccumulateGrad for the leaf `parameter`, because the present one expects the old shape.
inline void forget_gradient_accumulator(const at::Tensor& parameter) {
  torch::autograd::impl::set_grad_accumulator(
      parameter, c10::weak_intrusive_ptr<torch::autograd::Node>(c10::intrusive_ptr<torch::autograd::Node>()));
}
#else
template <class N = torch::autograd::Node>
using NodePointer = std::shared_ptr<N>;

template <class N, class... Arguments>
NodePointer<N> make_node(Arguments&&... arguments) {
  return NodePointer<N>(new N(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode);
}

inline void forget_gradient_accumulator(const at::Tensor& parameter) {
  torch::autograd::impl::set_grad_accumulator(parameter, {});
}
#endif

}  // namespace tessera::nn
