#include <tests/double/launch.h>
#include <tests/double/products.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace cuda_double {

void* KernelArguments::add(const void* pointer, std::int64_t bytes, bool read, bool written) {
  if (pointer == nullptr) return nullptr;
  if (!is_device(pointer)) {
    add_finding(Kind::mixed_devices, std::string("the kernel ") + kernel_ + " gets a host pointer");
    throw std::runtime_error("CUDA error: an illegal memory access was encountered");
  }
  if (device_of(pointer) != current_device()) {
    add_finding(Kind::wrong_device, std::string("the kernel ") + kernel_ +
                                        " is launched on cuda:" + std::to_string(current_device()) +
                                        " for memory of cuda:" + std::to_string(device_of(pointer)));
  }
  if (read) accesses_.push_back({pointer, static_cast<std::size_t>(bytes), false});
  if (written) accesses_.push_back({pointer, static_cast<std::size_t>(bytes), true});
  if (!read && products_are_skipped()) std::memset(mirror(pointer), 0, static_cast<std::size_t>(bytes));
  return mirror(pointer);
}

bool KernelArguments::enqueue(double flops) const {
  cuda_double::enqueue(kernel_, current_device(), current_stream(current_device()), accesses_);
  count_operation(kernel_, {.bytes = bytes_of(accesses_), .flops = flops});
  return !products_are_skipped();
}

}  // namespace cuda_double
