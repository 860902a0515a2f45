// The tables of libtessera_cuda.so on the double.
//
// Environment: DOUBLE_ONE_GPU: all devices say that they are one GPU, so that ranks share it.
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/c10d/c10d_backend.h>
#include <tessera/kernels/cpu/adamw.h>
#include <tessera/kernels/cpu/block_squares.h>
#include <tessera/layout/backends.h>
#include <tessera/optim/device_kernels.h>
#include <tessera/optim/exact_sum.h>

#include <tests/double/memory.h>
#include <tests/double/nccl.h>
#include <tests/double/order.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace cuda_double {
namespace {

using tessera::comm::BackendPlugin;
using tessera::comm::BackendRequest;
using tessera::optim::DeviceKernels;

std::string device_identity(int index) {
  return "double:" + std::to_string(std::getenv("DOUBLE_ONE_GPU") != nullptr ? 0 : index);
}

std::shared_ptr<tessera::comm::Backend> make_backend(const BackendRequest& request) {
  set_device(request.device.index());  // as the real plug-in does
  return tessera::comm::make_c10d_backend(make_nccl(request), {.name = request.name,
                                                               .kind = std::string(tessera::layout::Nccl::row.name),
                                                               .device = request.device,
                                                               .owner = nullptr});
}

/// Throws as a GPU does for a host pointer; a finding for memory of another device than the current one.
void check_pointer(const char* kernel, const void* pointer) {
  if (!is_device(pointer)) {
    add_finding(Kind::mixed_devices, std::string("the kernel ") + kernel + " gets a host pointer");
    throw std::runtime_error("CUDA error: an illegal memory access was encountered");
  }
  if (device_of(pointer) != current_device()) {
    add_finding(Kind::wrong_device, std::string("the kernel ") + kernel +
                                        " is launched on cuda:" + std::to_string(current_device()) +
                                        " for memory of cuda:" + std::to_string(device_of(pointer)));
  }
}

/// ExactSum::add on words of the mirror.
void add_exact_squares(std::span<const tessera::kernels::cuda::SquareRange> ranges,
                       tessera::kernels::cuda::SquareType type, std::int64_t* words) {
  constexpr std::size_t words_bytes = tessera::kernels::cuda::exact_words * sizeof(std::int64_t);
  const bool half = type == tessera::kernels::cuda::SquareType::bfloat16;
  std::vector<Access> accesses = {{words, words_bytes, false}, {words, words_bytes, true}};
  check_pointer("add_exact_squares", words);
  tessera::optim::ExactSum sum = tessera::optim::ExactSum::of_words(
      {static_cast<const std::int64_t*>(mirror(words)), tessera::kernels::cuda::exact_words});
  for (const auto& range : ranges) {
    if (range.numel == 0) continue;
    check_pointer("add_exact_squares", range.data);
    accesses.push_back({range.data, static_cast<std::size_t>(range.numel) * (half ? 2 : 4), false});
    std::vector<float> values(static_cast<std::size_t>(range.numel));
    if (half) {
      const auto* bits = static_cast<const std::uint16_t*>(mirror(range.data));
      std::transform(bits, bits + range.numel, values.begin(),
                     [](std::uint16_t b) { return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16); });
    } else {
      std::memcpy(values.data(), mirror(range.data), values.size() * sizeof(float));
    }
    std::vector<double> sums((values.size() + 63) / 64);
    tessera::kernels::block_squares(values.data(), range.numel, sums.data());
    sum.add(sums);
  }
  const std::vector<std::int64_t> added = sum.words();
  std::copy(added.begin(), added.end(), static_cast<std::int64_t*>(mirror(words)));
  enqueue("add_exact_squares", current_device(), current_stream(current_device()), accesses);
  count_operation("add_exact_squares");
}

/// The CPU's kernel on the mirrors, launched on the current stream of the current device.
void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const tessera::kernels::AdamwArgs& args) {
  const int device = current_device();
  for (const void* pointer : {static_cast<const void*>(p), static_cast<const void*>(g), static_cast<const void*>(m),
                              static_cast<const void*>(v)}) {
    check_pointer("adamw", pointer);
  }
  const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
  enqueue("adamw", device, current_stream(device),
          {{p, bytes, false},
           {g, bytes, false},
           {m, bytes, false},
           {v, bytes, false},
           {p, bytes, true},
           {m, bytes, true},
           {v, bytes, true}});
  count_operation("adamw");
  tessera::kernels::adamw(static_cast<float*>(mirror(p)), static_cast<const float*>(mirror(g)),
                          static_cast<float*>(mirror(m)), static_cast<float*>(mirror(v)), n, args);
}

constexpr BackendPlugin backend = {BackendPlugin::current_abi, &device_count, &device_identity, &make_backend};
constexpr DeviceKernels kernels = {DeviceKernels::current_abi, &adamw, &add_exact_squares};

}  // namespace
}  // namespace cuda_double

extern "C" const void* tessera_backend_plugin() { return &cuda_double::backend; }
extern "C" const void* tessera_optimizer_kernels() { return &cuda_double::kernels; }
