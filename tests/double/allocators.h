#pragma once
/// \file
/// LibTorch's two allocators of a CUDA device: device memory, and pinned host memory.

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace cuda_double {

c10::DeviceAllocator& device_allocator();

at::HostAllocator& pinned_allocator();
bool is_pinned(const void* pointer);

}  // namespace cuda_double
