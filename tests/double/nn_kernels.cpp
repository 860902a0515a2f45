// The table of nn/'s kernels on the double.
#include <tessera/nn/device/kernels.h>

#include <tests/double/launch.h>

#include <algorithm>

namespace cuda_double {
namespace {

using tessera::nn::DeviceKernels;
namespace cuda = tessera::kernels::cuda;

std::int64_t numel(const cuda::RandomLines& l) {
  return l.rows * std::max<std::int64_t>(l.heads, 1) * l.tokens * l.columns;
}

cuda::RandomLines seen(KernelArguments& arguments, cuda::RandomLines lines) {
  lines.positions = arguments.read(lines.positions, lines.tokens);
  lines.column_positions = arguments.read(lines.column_positions, lines.columns);
  return lines;
}

void dropout(cuda::ConstReals x, cuda::Reals y, cuda::RandomLines lines, std::uint32_t limit, float scale) {
  KernelArguments arguments("dropout");
  x = arguments.read(x, numel(lines));
  y = arguments.write(y, numel(lines));
  lines = seen(arguments, lines);
  arguments.enqueue();
  cuda::dropout(x, y, lines, limit, scale, nullptr);
}

void uniform(float* y, cuda::RandomLines lines) {
  KernelArguments arguments("uniform");
  y = arguments.write(y, numel(lines));
  lines = seen(arguments, lines);
  arguments.enqueue();
  cuda::uniform(y, lines, nullptr);
}

constexpr DeviceKernels kernels = {
    .abi = DeviceKernels::current_abi,
    .dropout = &dropout,
    .uniform = &uniform,
};

}  // namespace
}  // namespace cuda_double

extern "C" const void* tessera_nn_kernels() { return &cuda_double::kernels; }
