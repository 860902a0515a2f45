#include <tessera/comm/shared_memory.h>

#include <ATen/ATen.h>

#include <tessera/base/allocated.h>
#include <tessera/base/log.h>
#include <tessera/comm/world.h>
#include <tessera/wire/shm/arena.h>

#include <atomic>
#include <numeric>

namespace tessera::comm {
namespace {

/// Ignores requires_grad in `options`: factories below autograd do not support it.
at::Tensor ordinary(at::IntArrayRef sizes, const at::TensorOptions& options, const std::string& why) {
  static std::atomic<bool> reported = false;
  if (!reported.exchange(true)) log::debug("empty_shared allocates ordinary memory: ", why);
  return at::empty(sizes, options);
}

at::Tensor from_arena(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const auto numel = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  if (numel <= 0) return at::empty(sizes, options);  // empty, or at::empty reports the error
  const auto bytes = static_cast<std::size_t>(numel) * options.dtype().itemsize();
  const std::shared_ptr<wire::shm::Arena> arena = wire::shm::process_arena();
  void* const piece = arena->allocate(bytes);
  count_allocated(static_cast<std::int64_t>(bytes));
  return at::from_blob(
      piece, sizes,
      [arena, bytes](void* p) {
        count_allocated(-static_cast<std::int64_t>(bytes));
        arena->free(p);
      },
      options);
}

/// `group` determines where the memory comes from; nullptr before init().
at::Tensor make(const Group* group, at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (group == nullptr) return ordinary(sizes, options, "init() was not called");
  if (!options.device().is_cpu()) return ordinary(sizes, options, concat("the device is ", options.device().str()));
  if (!group->capabilities().reads_peers_in_place)
    return ordinary(
        sizes, options,
        concat("the backend of group '", group->name(), "', ", group->backend(), ", cannot read it in place"));
  return from_arena(sizes, options);
}

}  // namespace

at::Tensor empty_shared(at::IntArrayRef sizes, at::TensorOptions options) {
  const at::Tensor plain = make(initialized() ? &world().group() : nullptr, sizes, options.requires_grad(std::nullopt));
  return options.requires_grad() ? plain.requires_grad_() : plain;
}

at::Tensor empty_shared(const Group& group, at::IntArrayRef sizes, at::TensorOptions options) {
  const at::Tensor plain = make(&group, sizes, options.requires_grad(std::nullopt));
  return options.requires_grad() ? plain.requires_grad_() : plain;
}

at::Tensor zeros_shared(const Group& group, at::IntArrayRef sizes, at::TensorOptions options) {
  const at::Tensor plain = make(&group, sizes, options.requires_grad(std::nullopt)).zero_();
  return options.requires_grad() ? plain.requires_grad_() : plain;
}

bool is_shared(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.is_contiguous() && tensor.nbytes() > 0 &&
         wire::shm::offset_in_arena(tensor.const_data_ptr(), tensor.nbytes()).has_value();
}

}  // namespace tessera::comm
