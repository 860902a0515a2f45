// The table of nn/'s kernels on the double.
#include <tessera/nn/device/kernels.h>

#include <tests/double/launch.h>
#include <tests/double/products.h>

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
  if (arguments.enqueue()) cuda::dropout(x, y, lines, limit, scale, nullptr);
}

void uniform(float* y, cuda::RandomLines lines) {
  KernelArguments arguments("uniform");
  y = arguments.write(y, numel(lines));
  lines = seen(arguments, lines);
  if (arguments.enqueue()) cuda::uniform(y, lines, nullptr);
}

void softmax_cross_entropy(cuda::Reals logits, const std::int64_t* targets, double* losses, std::int64_t rows,
                           std::int64_t columns, cuda::CrossEntropyArgs args) {
  KernelArguments arguments("softmax_cross_entropy");
  const cuda::ConstReals read = {logits.data, logits.type};
  const std::int64_t n = rows * (columns + args.padding);
  logits = args.gradient ? arguments.update(logits, n)
                         : cuda::Reals{const_cast<void*>(arguments.read(read, n).data), logits.type};
  targets = arguments.read(targets, rows);
  losses = arguments.write(losses, rows);
  if (arguments.enqueue()) cuda::softmax_cross_entropy(logits, targets, losses, rows, columns, args, nullptr);
}

// The factor is already known here: the double's kernels never run later.
void multiply_unless_one(cuda::Reals x, const float* factor, std::int64_t n) {
  KernelArguments arguments("multiply_unless_one");
  factor = arguments.read(factor, 1);
  if (*factor != 1) x = arguments.update(x, n);
  if (arguments.enqueue()) cuda::multiply_unless_one(x, factor, n, nullptr);
}

// Operations on rows.

void embedded_sum(const cuda::EmbeddedSum& a, std::int64_t rows, std::int64_t columns) {
  KernelArguments arguments("embedded_sum");
  cuda::EmbeddedSum seen = a;
  seen.ids = arguments.read(a.ids, rows);
  seen.tokens = arguments.read(a.tokens, a.vocabulary * columns);
  seen.places = arguments.read(a.places, a.period * columns);
  seen.y = arguments.write(a.y, rows * columns);
  if (arguments.enqueue()) cuda::embedded_sum(seen, rows, columns, nullptr);
}

void norm(const cuda::NormForward& a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  KernelArguments arguments("norm");
  const cuda::NormForward seen = {.x = arguments.read(a.x, n),
                                  .delta = arguments.read(a.delta, n),
                                  .delta_bias = arguments.read(a.delta_bias, columns),
                                  .weight = arguments.read(a.weight, columns),
                                  .bias = arguments.read(a.bias, columns),
                                  .eps = a.eps,
                                  .sum = arguments.write(a.sum, n),
                                  .y = arguments.write(a.y, n),
                                  .mean = arguments.write(a.mean, rows),
                                  .rstd = arguments.write(a.rstd, rows)};
  if (arguments.enqueue()) cuda::norm(seen, rows, columns, nullptr);
}

void norm_backward(const cuda::NormBackward& a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  KernelArguments arguments("norm_backward");
  const cuda::NormBackward seen = {
      .sum = arguments.read(a.sum, n),
      .dy = arguments.read(a.dy, n),
      .dsum = arguments.read(a.dsum, n),
      .weight = arguments.read(a.weight, columns),
      .mean = arguments.read(a.mean, rows),
      .rstd = arguments.read(a.rstd, rows),
      .dx = arguments.write(a.dx, n),
      .ddelta = arguments.write(a.ddelta, n),
      .dweight = arguments.write(a.dweight, columns),
      .dbias = arguments.write(a.dbias, columns),
      .ddelta_bias = arguments.write(a.ddelta_bias, columns),
      .partial = arguments.write(a.partial, cuda::norm_partial_sums(a.mean != nullptr, rows, columns))};
  if (arguments.enqueue()) cuda::norm_backward(seen, rows, columns, nullptr);
}

void add_residual(const cuda::Residual& a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  KernelArguments arguments("add_residual");
  const cuda::Residual seen = {arguments.read(a.x, n), arguments.read(a.delta, n), arguments.read(a.bias, columns),
                               arguments.write(a.y, n)};
  if (arguments.enqueue()) cuda::add_residual(seen, rows, columns, nullptr);
}

void add_residual_backward(const cuda::ResidualBackward& a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  KernelArguments arguments("add_residual_backward");
  const cuda::ResidualBackward seen = {arguments.read(a.dy, n), arguments.write(a.ddelta, n),
                                       arguments.write(a.dbias, columns),
                                       arguments.write(a.partial, cuda::residual_partial_sums(rows, columns))};
  if (arguments.enqueue()) cuda::add_residual_backward(seen, rows, columns, nullptr);
}

void gelu_tanh(cuda::ConstReals x, cuda::ConstReals bias, cuda::Reals y, std::int64_t rows, std::int64_t columns) {
  KernelArguments arguments("gelu_tanh");
  x = arguments.read(x, rows * columns);
  bias = arguments.read(bias, columns);
  y = arguments.write(y, rows * columns);
  if (arguments.enqueue()) cuda::gelu_tanh(x, bias, y, rows, columns, nullptr);
}

void gelu_tanh_backward(const cuda::GeluBackward& a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  KernelArguments arguments("gelu_tanh_backward");
  const cuda::GeluBackward seen = {.x = arguments.read(a.x, n),
                                   .bias = arguments.read(a.bias, columns),
                                   .dy = arguments.read(a.dy, n),
                                   .dx = arguments.write(a.dx, n),
                                   .dbias = arguments.write(a.dbias, columns),
                                   .partial = arguments.write(a.partial, cuda::gelu_partial_sums(rows, columns))};
  if (arguments.enqueue()) cuda::gelu_tanh_backward(seen, rows, columns, nullptr);
}

void swiglu(cuda::ConstReals gate, cuda::ConstReals up, cuda::Reals y, std::int64_t n) {
  KernelArguments arguments("swiglu");
  gate = arguments.read(gate, n);
  up = arguments.read(up, n);
  y = arguments.write(y, n);
  if (arguments.enqueue()) cuda::swiglu(gate, up, y, n, nullptr);
}

void swiglu_backward(const cuda::SwigluBackward& a, std::int64_t n) {
  KernelArguments arguments("swiglu_backward");
  const cuda::SwigluBackward seen = {arguments.read(a.gate, n), arguments.read(a.up, n), arguments.read(a.dy, n),
                                     arguments.write(a.dgate, n), arguments.write(a.dup, n)};
  if (arguments.enqueue()) cuda::swiglu_backward(seen, n, nullptr);
}

void rotary(const cuda::Rotary& a, std::int64_t tokens, std::int64_t heads, std::int64_t size) {
  KernelArguments arguments("rotary");
  cuda::Rotary seen = a;
  seen.x = arguments.read(a.x, (tokens - 1) * a.x_stride + heads * size);
  seen.cos = arguments.read(a.cos, a.period * size / 2);
  seen.sin = arguments.read(a.sin, a.period * size / 2);
  seen.y = arguments.write(a.y, tokens * heads * size);
  if (arguments.enqueue()) cuda::rotary(seen, tokens, heads, size, nullptr);
}

void join_columns(const cuda::ColumnJoin& a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t all = a.parts * columns;
  KernelArguments arguments("join_columns");
  cuda::ColumnJoin seen = a;
  for (int p = 0; p < a.parts; ++p) seen.part[p] = arguments.read(a.part[p], rows * columns);
  seen.joined = arguments.write(a.joined, rows * all);
  seen.sums = arguments.write(a.sums, all);
  seen.partial = arguments.write(a.partial, cuda::joined_partial_sums(a.parts, rows, columns));
  if (arguments.enqueue()) cuda::join_columns(seen, rows, columns, nullptr);
}

void sort_slots(const cuda::SlotOrder& a, std::int64_t slots, std::int64_t experts) {
  KernelArguments arguments("sort_slots");
  const cuda::SlotOrder seen = {
      .ids = arguments.read(a.ids, slots),
      .rows_each = a.rows_each,
      .order = a.rows_each > 0 ? arguments.update(a.order, a.rows_each * experts) : arguments.write(a.order, slots),
      .inverse = arguments.write(a.inverse, slots),
      .counts = arguments.write(a.counts, experts),
      .ends = arguments.write(a.ends, experts),
      .scratch = arguments.update(a.scratch, cuda::slot_scratch(slots, experts))};
  if (arguments.enqueue()) cuda::sort_slots(seen, slots, experts, nullptr);
}

double flops(std::int64_t lines, std::int64_t inner, std::int64_t columns) {
  return 2.0 * static_cast<double>(lines) * static_cast<double>(inner) * static_cast<double>(columns);
}

void group_rows(const cuda::GroupRows& a, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                std::int64_t groups) {
  KernelArguments arguments("group_rows Float");
  const cuda::GroupRows seen = {.x = arguments.read(a.x, rows * inner),
                                .weights = arguments.read(a.weights, groups * inner * columns),
                                .ends = arguments.read(a.ends, groups),
                                .y = arguments.write(a.y, rows * columns),
                                .transposed = a.transposed};
  if (arguments.enqueue(flops(rows, inner, columns))) cuda::group_rows(seen, rows, inner, columns, groups, nullptr);
}

void group_sums(const cuda::GroupSums& a, std::int64_t rows, std::int64_t lines, std::int64_t columns,
                std::int64_t groups) {
  KernelArguments arguments("group_sums Float");
  const cuda::GroupSums seen = {.left = arguments.read(a.left, rows * lines),
                                .right = arguments.read(a.right, rows * columns),
                                .ends = arguments.read(a.ends, groups),
                                .sums = arguments.write(a.sums, groups * lines * columns)};
  if (arguments.enqueue(flops(rows, lines, columns))) cuda::group_sums(seen, rows, lines, columns, groups, nullptr);
}

// Eight bits. A kernel that is given a chosen value does not search for the largest. That is the normal case in a
// steady step, and calls are also counted that way if nothing is computed.

bool is_chosen(KernelArguments& arguments, const float*& chosen) {
  if (chosen == nullptr) return false;
  chosen = arguments.read(chosen, 1);
  return products_are_skipped() || *chosen > 0;
}

void fp8_largest(cuda::ConstReals x, const float* chosen, float* parts, std::int64_t n) {
  KernelArguments arguments("fp8_largest");
  if (!is_chosen(arguments, chosen)) {
    x = arguments.read(x, n);
    parts = arguments.write(parts, cuda::fp8_parts(n));
  }
  if (arguments.enqueue()) cuda::fp8_largest(x, chosen, parts, n, nullptr);
}

void fp8_cast(const cuda::Fp8Cast& a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  KernelArguments arguments("fp8_cast");
  cuda::Fp8Cast seen = a;
  if (!is_chosen(arguments, seen.chosen)) seen.parts = arguments.read(a.parts, cuda::fp8_parts(n));
  seen.x = arguments.read(a.x, n);
  seen.values = arguments.write(a.values, n);
  seen.turned = arguments.write(a.turned, n);
  seen.scale = arguments.write(a.scale, 1);
  seen.noted = arguments.update(a.noted, 1);
  if (arguments.enqueue()) cuda::fp8_cast(seen, rows, columns, nullptr);
}

constexpr DeviceKernels kernels = {
    .abi = DeviceKernels::current_abi,
    .dropout = &dropout,
    .uniform = &uniform,
    .softmax_cross_entropy = &softmax_cross_entropy,
    .multiply_unless_one = &multiply_unless_one,
    .embedded_sum = &embedded_sum,
    .norm = &norm,
    .norm_backward = &norm_backward,
    .norm_partial_sums = &cuda::norm_partial_sums,
    .add_residual = &add_residual,
    .add_residual_backward = &add_residual_backward,
    .residual_partial_sums = &cuda::residual_partial_sums,
    .gelu_tanh = &gelu_tanh,
    .gelu_tanh_backward = &gelu_tanh_backward,
    .gelu_partial_sums = &cuda::gelu_partial_sums,
    .swiglu = &swiglu,
    .swiglu_backward = &swiglu_backward,
    .rotary = &rotary,
    .join_columns = &join_columns,
    .joined_partial_sums = &cuda::joined_partial_sums,
    .sort_slots = &sort_slots,
    .groups_products = [] { return true; },  // as on an H200
    .group_rows = &group_rows,
    .group_sums = &group_sums,
    .fp8_largest = &fp8_largest,
    .fp8_cast = &fp8_cast,
};

}  // namespace
}  // namespace cuda_double

extern "C" const void* tessera_nn_kernels() { return &cuda_double::kernels; }
