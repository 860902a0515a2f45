#pragma once
/// \file
/// Construction of unmodified modules without memory: parameters get sizes but no data; what their initialisers did is
/// remembered and replayed later, tensor by tensor, with the same bits as an ordinary construction would give.

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace tessera {
namespace parallel {

/// While it lives, tensors made on this thread at user level (aten::empty and what ends in it) have no memory, and one-tensor in-place
/// initialisers of them are logged together with the random state. Anything else that needs their data materialises them.
/// Nests. After the scope the random state is what an ordinary construction would have left.
class DeferredScope {
 public:
  DeferredScope();
  ~DeferredScope();
  DeferredScope(const DeferredScope&) = delete;
  DeferredScope& operator=(const DeferredScope&) = delete;
};

bool is_deferred(const at::Tensor& tensor);
/// Gives the tensors memory and replays their initialisers, in the order in which they ran. Tensors that are not deferred stay.
/// Leaves this thread's random state as it was.
void materialize(const std::vector<at::Tensor>& tensors);
/// Forgets the initialisers and gives `tensor` the sizes' worth of undefined memory: its values come from elsewhere.
void materialize_empty(const at::Tensor& tensor);

}  // namespace parallel

/// A module of type M (…Impl class or plain module) constructed without memory. Pass it to Sharded, or materialise it whole
/// with parallel::materialize(module->parameters()).
template <class M, class... Args>
std::shared_ptr<M> deferred(Args&&... args) {
  const parallel::DeferredScope scope;
  return std::make_shared<M>(std::forward<Args>(args)...);
}

}  // namespace tessera
