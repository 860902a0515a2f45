#include <ATen/EmptyTensor.h>

#include <tests/double/allocators.h>
#include <tests/double/memory.h>
#include <tests/double/mirrors.h>

#include <algorithm>
#include <cstring>

namespace cuda_double {
namespace {

constexpr c10::DispatchKeySet cpu_keys{c10::DispatchKey::CPU};

c10::Storage mirror_storage(const c10::Storage& storage) {
  // Does not check that the memory is present: views of a released storage (sharded parameters) are legal. Kernels that
  // read it are checked in fallback.cpp.
  void* memory = mirror(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
  return {c10::Storage::use_byte_size_t(), storage.nbytes(), c10::DataPtr(memory, c10::Device(c10::kCPU)),
          c10::GetAllocator(c10::kCPU), /*resizable=*/true};
}

at::Tensor tensor_on(c10::Storage storage, const at::Tensor& like) {
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), cpu_keys, like.dtype());
  auto* impl = t.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  // A Python or C++ number wrapped as a tensor does not take part in type promotion.
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return t;
}

/// Dimensions of more than one element as (stride, size) in elements, smallest stride first.
std::vector<std::pair<std::int64_t, std::int64_t>> dimensions_of(const at::Tensor& t) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;
  for (std::int64_t d = 0; d < t.dim(); ++d) {
    if (t.size(d) > 1 && t.stride(d) != 0) dimensions.emplace_back(t.stride(d), t.size(d));
  }
  std::sort(dimensions.begin(), dimensions.end());
  return dimensions;
}

}  // namespace

void add_accesses(const at::Tensor& t, bool write, std::vector<Access>& out) {
  if (!t.defined() || t.numel() == 0 || !t.has_storage()) return;
  const auto dimensions = dimensions_of(t);
  std::int64_t run = 1;  // elements
  std::size_t outer = 0;
  while (outer < dimensions.size() && dimensions[outer].first <= run) {  // "<": overlapping windows
    run += dimensions[outer].first * (dimensions[outer].second - 1);
    ++outer;
  }
  std::int64_t count = 1, span = run;
  for (std::size_t d = outer; d < dimensions.size(); ++d) {
    count *= dimensions[d].second;
    span += dimensions[d].first * (dimensions[d].second - 1);
  }
  const auto width = static_cast<std::int64_t>(t.element_size());
  const char* base = static_cast<const char*>(t.storage().data()) + t.storage_offset() * width;
  if (count > 1024) {
    out.push_back({base, static_cast<std::size_t>(span * width), write, static_cast<std::size_t>(count * run * width)});
    return;
  }
  std::vector<std::int64_t> index(dimensions.size() - outer);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * dimensions[outer + d].first;
    out.push_back({base + offset * width, static_cast<std::size_t>(run * width), write});
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (++index[d] < dimensions[outer + d].second) break;
      index[d] = 0;
    }
  }
}

at::Tensor host_view(const at::Tensor& tensor) {
  const BelowAutograd below;
  return tensor_on(mirror_storage(tensor.storage()), tensor);
}

c10::Storage Mirrors::storage_of(const c10::Storage& storage) {
  for (const auto& [device, host] : storages_) {
    if (device.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) return host;
  }
  storages_.emplace_back(storage, mirror_storage(storage));
  return storages_.back().second;
}

at::Tensor Mirrors::of(const at::Tensor& tensor) {
  for (const auto& [device, host] : tensors_) {
    if (device.is_same(tensor)) return host;
  }
  tensors_.emplace_back(tensor, tensor_on(storage_of(tensor.storage()), tensor));
  return tensors_.back().second;
}

at::Tensor Mirrors::back(const at::Tensor& result) {
  if (!result.defined() || !result.is_cpu()) return result;
  for (const auto& [device, host] : tensors_) {
    if (host.is_same(result)) return device;
  }
  for (const auto& [device, host] : tensors_) {
    if (host.storage().unsafeGetStorageImpl() != result.storage().unsafeGetStorageImpl()) continue;
    // All keys of the viewed tensor, as in LibTorch's own view kernels: keys of wrappers must survive.
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(device.storage()),
                                                               device.key_set(), result.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
    return view;
  }
  at::Tensor made = at::detail::empty_strided_generic(result.sizes(), result.strides(), &device_allocator(), cuda_keys,
                                                      result.scalar_type());
  if (made.storage().nbytes() > 0) {
    std::memcpy(mirror(made.storage().mutable_data()), result.data_ptr(), made.storage().nbytes());
  }
  made_.push_back(made);
  return made;
}

void Mirrors::follow_resizes() {
  for (const auto& [device, host] : tensors_) {
    if (device.sizes() == host.sizes() && device.strides() == host.strides()) continue;
    c10::StorageImpl* storage = device.storage().unsafeGetStorageImpl();
    const std::size_t bytes = host.storage().nbytes();
    if (bytes > storage->nbytes()) {
      storage->set_data_ptr_noswap(device_allocator().allocate(bytes));
      storage->set_nbytes(bytes);
      std::memcpy(mirror(storage->mutable_data()), host.storage().data(), bytes);
    }
    device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }
}

}  // namespace cuda_double
