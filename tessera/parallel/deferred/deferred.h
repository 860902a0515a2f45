#pragma once
/// \file
/// parallel/deferred/: constructs unmodified modules without memory: parameters get sizes but no data; the operations
/// of their initialisers are logged and replayed later, tensor by tensor, with the same bits as an ordinary
/// construction.

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace tessera {
namespace parallel {

/// While it exists, CPU tensors created on this thread at user level (aten::empty and operators that call it: zeros,
/// ones, full, rand, randn, their _like and new_ forms) have sizes but no memory, and in-place operators that depend
/// only on the tensor, numbers and a generator (uniform_, normal_, fill_, mul_ by a number, erfinv_, clamp_, ..., also
/// through views) are logged together with the state of their generator, which advances as if they had run. Any other
/// use of the data materialises it, inside and outside of the scope. So does a raw pointer as long as nothing was
/// logged (a table filled through an accessor is kept); afterwards it throws an error that states the cause. Nests.
/// After the scope random states are those of an ordinary construction. A tensor's log takes 2.5 KB per random draw.
/// Threads: the scope applies to the calling thread; the tensors may be used on any.
class DeferredScope {
 public:
  DeferredScope();  ///< applies to the calling thread
  ~DeferredScope();
  DeferredScope(const DeferredScope&) = delete;
  DeferredScope& operator=(const DeferredScope&) = delete;

 private:
  bool outermost_ = true;
};

/// Whether `tensor` has no memory yet. False for undefined tensors.
bool is_deferred(const at::Tensor& tensor);
/// Gives the tensors memory and replays their logs, with the bits of an ordinary construction, for any set and order of
/// tensors. Tensors keep their identity, and their aliases are materialised with them. Tensors that are not deferred
/// are unchanged. Restores every random state.
void materialize(const std::vector<at::Tensor>& tensors);
/// materialize() on the host, then moves the tensors to `device`: a module that was constructed without memory may be
/// used on any device, with the host's random numbers. The tensors keep their identity; existing views of them stay on
/// the host and are no longer connected to them.
void materialize_on(c10::Device device, const std::vector<at::Tensor>& tensors);
/// Discards the log and gives `tensor` undefined memory of its size on `device`, for values that come from another
/// source.
void materialize_empty(const at::Tensor& tensor, c10::Device device = c10::kCPU);

}  // namespace parallel

/// Constructs a module of type M (...Impl class or plain module) without memory for its parameters. Pass it to Sharded,
/// or materialise all of it with parallel::materialize(module->parameters()). Modules that consist of at:: and torch::
/// operators may be used directly: each parameter gets its memory when an operator first needs it (code that reads raw
/// pointers, as our fused functions do, gets an error). Buffers, which every rank keeps whole, get theirs at once.
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
