#pragma once
/// \file
/// parallel/deferred/: construction of unmodified modules without memory: parameters get sizes but no data; what their
/// initialisers did is remembered and replayed later, tensor by tensor, with the same bits as an ordinary construction
/// would give.

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace tessera {
namespace parallel {

/// While it lives, CPU tensors made on this thread at user level (aten::empty and what ends in it: zeros, ones, full,
/// rand, randn, their _like and new_ forms) have sizes and no memory, and in-place operators that depend on the tensor,
/// numbers and a generator only (uniform_, normal_, fill_, mul_ by a number, erfinv_, clamp_, ..., also through views)
/// are logged together with the state of their generator, which moves on as if they had run. Anything else that needs
/// the data materialises it, inside and outside of the scope. So does a raw pointer as long as nothing was logged (a
/// table filled through an accessor is kept); afterwards it is an error that says so. Nests. After the scope random
/// states are what an ordinary construction leaves. A tensor's log: 2.5 KB per random draw. Threads: the scope is of
/// the calling thread; the tensors may be used by any.
class DeferredScope {
 public:
  DeferredScope();  ///< begins here, for the calling thread
  ~DeferredScope();
  DeferredScope(const DeferredScope&) = delete;
  DeferredScope& operator=(const DeferredScope&) = delete;

 private:
  bool outermost_ = true;
};

/// Whether `tensor` has no memory yet. False for undefined tensors.
bool is_deferred(const at::Tensor& tensor);
/// Gives the tensors memory and replays what was logged: the bits of an ordinary construction, whichever tensors are
/// given and in whichever order. Tensors keep their identity, and their aliases are materialised with them. Tensors
/// that are not deferred stay. Leaves every random state as it was.
void materialize(const std::vector<at::Tensor>& tensors);
/// materialize() on the host, then moves the tensors to `device`: a module that was constructed without memory may be
/// used on any device, with the host's random numbers. The tensors stay the same ones; views of them that others keep
/// stay on the host and are no longer tied to them.
void materialize_on(c10::Device device, const std::vector<at::Tensor>& tensors);
/// Forgets the initialisers and gives `tensor` the sizes' worth of undefined memory on `device`: its values come from
/// elsewhere.
void materialize_empty(const at::Tensor& tensor, c10::Device device = c10::kCPU);

}  // namespace parallel

/// A module of type M (…Impl class or plain module) whose parameters are constructed without memory. Pass it to
/// Sharded, or materialise it whole with parallel::materialize(module->parameters()). Modules made of at:: and torch::
/// operators may be used as they are: each parameter gets its memory when an operator first needs it (code that reads
/// raw pointers, as our fused functions do, gets an error). Buffers, which every rank keeps whole, have theirs at once.
template <class M, class... Args>
std::shared_ptr<M> deferred(Args&&... args) {
  std::shared_ptr<M> module;
  {
    const parallel::DeferredScope scope;
    module = std::make_shared<M>(std::forward<Args>(args)...);
  }
  if constexpr (requires { module->buffers(); }) parallel::materialize(module->buffers());
  return module;
}

}  // namespace tessera
