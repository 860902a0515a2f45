// Operators that allocate memory, change a storage or move data between host and device. They need kernels of their own
// on the double, because the CPU's would allocate host memory.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tests/double/allocators.h>
#include <tests/double/memory.h>
#include <tests/double/mirrors.h>
#include <tests/double/operators.h>

#include <cstring>
#include <set>

namespace cuda_double {

void start(const char* operation, c10::Device device, const std::vector<Access>& accesses) {
  enqueue(operation, device.index(), current_stream(device.index()), accesses);
}

bool has_own_kernel(const std::string& name) {
  static const std::set<std::string> names = {"aten::empty.memory_format",
                                              "aten::empty_strided",
                                              "aten::resize_",
                                              "aten::copy_",
                                              "aten::set_.source_Storage_storage_offset",
                                              "aten::set_.source_Storage",
                                              "aten::set_.source_Tensor",
                                              "aten::set_",
                                              "aten::record_stream",
                                              "aten::_fused_sdp_choice",
                                              "aten::_softmax",
                                              "aten::_softmax.out",
                                              "aten::_log_softmax",
                                              "aten::_log_softmax.out"};
  return names.contains(name);
}

namespace {

c10::Device indexed(std::optional<c10::Device> device) {
  if (device && device->has_index()) return *device;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(current_device())};
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(indexed(device));
  return at::detail::empty_generic(size, &device_allocator(), cuda_keys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(indexed(device));
  return at::detail::empty_strided_generic(size, stride, &device_allocator(), cuda_keys, c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  if (self.sizes() == size) return self;
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format && *format != at::MemoryFormat::Contiguous && *format != at::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*format);
  }
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  const auto elements = static_cast<std::size_t>(self.storage_offset() + self.numel());
  const std::size_t bytes = elements * self.element_size();
  if (self.numel() == 0 || bytes <= storage->nbytes()) return self;
  c10::DataPtr grown = device_allocator().allocate(bytes);
  if (storage->nbytes() > 0) {
    std::memcpy(mirror(grown.get()), mirror(storage->mutable_data()), storage->nbytes());
    start("aten::resize_", self.device(),
          {{storage->data(), storage->nbytes(), false}, {grown.get(), storage->nbytes(), true}});
  }
  storage->set_data_ptr_noswap(std::move(grown));
  storage->set_nbytes(bytes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.empty() && !size.empty()) {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  return self;
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_whole(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {elements}, {1});
}

at::Tensor& set_empty(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  at::Storage none(at::Storage::use_byte_size_t(), 0, device_allocator().allocate(0), &device_allocator(), true);
  return set_storage(self, std::move(none), 0, {0}, {1});
}

void record_use(at::Tensor& self, at::Stream stream) {
  record_stream(self.storage().data(), stream.device_index(), stream.id());
}

/// Makes the current stream of `later` wait for the current stream of `earlier`.
void order_streams(c10::Device earlier, c10::Device later) {
  void* event = event_record(nullptr, earlier.index(), current_stream(earlier.index()));
  event_block(event, later.index(), current_stream(later.index()));
  event_destroy(event);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source) || self.numel() == 0) return self;
  const BelowAutograd below;
  Mirrors mirrors;
  std::vector<Access> accesses;
  const at::Tensor to = self.is_cuda() ? mirrors.of(self) : self;
  const at::Tensor from = source.is_cuda() ? mirrors.of(source) : source;
  if (source.is_cuda()) add_accesses(source, false, accesses);
  if (self.is_cuda()) add_accesses(self, true, accesses);
  const bool over_the_bus = self.is_cuda() != source.is_cuda();
  const std::string name =
      std::string("aten::copy_ ") + c10::toString(source.scalar_type()) + " to " + c10::toString(self.scalar_type());
  count_operation(over_the_bus ? "copy between host and device" : name, {.bytes = bytes_of(accesses)});
  const c10::Device device = source.is_cuda() ? source.device() : self.device();
  const c10::DeviceGuard guard(device);
  // A copy between two devices is ordered with the streams of both, as in CUDA.
  const bool between_devices = self.is_cuda() && source.is_cuda() && self.device() != source.device();
  if (between_devices) order_streams(self.device(), device);
  start("aten::copy_", device, accesses);
  to.copy_(from);
  if (between_devices) order_streams(device, self.device());
  if (!self.is_cuda() || !source.is_cuda()) {
    const at::Tensor& host = self.is_cuda() ? source : self;
    const bool pinned = is_pinned(host.storage().data());
    if (!non_blocking || !pinned) {
      host_waits(self.is_cuda() ? Wait::to_device : Wait::to_host,
                 non_blocking ? "copy_ (non_blocking, but of pageable memory)" : "copy_", device.index(),
                 current_stream(device.index()));
    }
  }
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", &set_whole);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_empty);
  m.impl("record_stream", &record_use);
  m.impl("copy_", &copy_);
}

}  // namespace cuda_double
