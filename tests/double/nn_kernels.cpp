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

void softmax_cross_entropy(cuda::Reals logits, const std::int64_t* targets, double* losses, std::int64_t rows,
                           std::int64_t columns, cuda::CrossEntropyArgs args) {
  KernelArguments arguments("softmax_cross_entropy");
  const cuda::ConstReals read = {logits.data, logits.type};
  logits = args.gradient ? arguments.update(logits, rows * columns)
                         : cuda::Reals{const_cast<void*>(arguments.read(read, rows * columns).data), logits.type};
  targets = arguments.read(targets, rows);
  losses = arguments.write(losses, rows);
  arguments.enqueue();
  cuda::softmax_cross_entropy(logits, targets, losses, rows, columns, args, nullptr);
}

constexpr DeviceKernels kernels = {
    .abi = DeviceKernels::current_abi,
    .dropout = &dropout,
    .uniform = &uniform,
    .softmax_cross_entropy = &softmax_cross_entropy,
};

}  // namespace
}  // namespace cuda_double

extern "C" const void* tessera_nn_kernels() { return &cuda_double::kernels; }
