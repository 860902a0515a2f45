#include <tessera/nn/moe/grouped_products.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tessera/nn/gemm.h>
#include <tessera/nn/parallel_for.h>
#include <tessera/nn/product_watch.h>

#include <algorithm>
#include <atomic>
#include <bit>

namespace at::native {
void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}  // namespace at::native

/// The BLAS in libtorch_cpu.so (MKL); inside a parallel region it runs only on the calling thread.
extern "C" void sgemm_(const char* a_way, const char* b_way, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* a_stride, const float* b, const int* b_stride,
                       const float* beta, float* c, const int* c_stride);

namespace tessera::nn {
namespace {

at::Tensor matrix(const float* numbers, std::int64_t stride, bool transposed, std::int64_t rows, std::int64_t columns) {
  return at::from_blob(const_cast<float*>(numbers), {rows, columns},
                       transposed ? at::IntArrayRef{1, stride} : at::IntArrayRef{stride, 1},
                       at::TensorOptions(at::kFloat));
}

/// `rows` rounded down, so that only a few different numbers of rows occur: steps are a quarter of a power of two and
/// at least 16. oneDNN builds a separate kernel for every number of rows, and the memory of a thousand of them is not
/// returned: 600 MB in thirty steps of a Mixtral with 48 experts of [512, 384].
std::int64_t few_rows(std::int64_t rows) {
  const std::int64_t step =
      std::max<std::int64_t>(16, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows)) / 4));
  return rows / step * step;
}

void multiply_onednn(const Product& p) {
  at::native::mkldnn_matmul(matrix(p.a, p.a_stride, p.a_transposed, p.m, p.k),
                            matrix(p.b, p.b_stride, p.b_transposed, p.k, p.n), matrix(p.c, p.c_stride, false, p.m, p.n),
                            p.accumulate ? 1 : 0, 1);
}

/// The last `count` of `rows` rows of numbers, padded with zero rows to a multiple of 16.
at::Tensor last_rows(const float* numbers, std::int64_t stride, std::int64_t columns, std::int64_t rows,
                     std::int64_t count) {
  at::Tensor all = at::empty({(count + 15) / 16 * 16, columns}, at::kFloat);
  float* to = all.mutable_data_ptr<float>();
  for (std::int64_t r = rows - count; r < rows; ++r, to += columns) std::copy_n(numbers + r * stride, columns, to);
  std::fill(to, all.mutable_data_ptr<float>() + all.numel(), 0.0f);
  return all;
}

/// Computes c += a b, or c = a b, where a group's rows are rows of a and c: first a number of rows for which a kernel
/// exists, then the padded rest.
void multiply_rows(Product p) {
  const std::int64_t rest = p.m - few_rows(p.m);
  Product last = p;
  p.m -= rest;
  if (p.m > 0) multiply_onednn(p);
  if (rest == 0) return;
  const at::Tensor a = last_rows(p.a, p.a_stride, p.k, last.m, rest), c = at::empty({a.size(0), p.n}, at::kFloat);
  last.a = a.const_data_ptr<float>();
  last.a_stride = p.k;
  last.c = c.mutable_data_ptr<float>();
  last.c_stride = p.n;
  last.m = a.size(0);
  last.accumulate = false;
  multiply_onednn(last);
  for (std::int64_t r = 0; r < rest; ++r) {
    float* to = p.c + (p.m + r) * p.c_stride;
    const float* from = last.c + r * p.n;
    for (std::int64_t i = 0; i < p.n; ++i) to[i] = p.accumulate ? to[i] + from[i] : from[i];
  }
}

/// The same if the product sums over a group's rows, which are rows of b and of the matrix whose transpose is a.
void multiply_sums(Product p) {
  const std::int64_t rest = p.k - few_rows(p.k);
  Product last = p;
  p.k -= rest;
  if (p.k > 0) multiply_onednn(p);
  if (rest == 0) return;
  const at::Tensor a = last_rows(p.a, p.a_stride, p.m, last.k, rest), b = last_rows(p.b, p.b_stride, p.n, last.k, rest);
  last.a = a.const_data_ptr<float>();
  last.a_stride = p.m;
  last.b = b.const_data_ptr<float>();
  last.b_stride = p.n;
  last.k = a.size(0);
  last.accumulate = p.accumulate || p.k > 0;
  multiply_onednn(last);
}

void multiply_here(const Product& p) {
  if (p.k == 0) {
    if (!p.accumulate)
      for (std::int64_t r = 0; r < p.m; ++r) std::fill_n(p.c + r * p.c_stride, p.n, 0.0f);
    return;
  }
  if (multiplies_with_onednn()) {
    if (!p.a_transposed) return multiply_rows(p);
    return p.b_transposed ? multiply_onednn(p) : multiply_sums(p);
  }
  // BLAS is column-major: c^T = b^T a^T.
  const auto way = [](bool transposed) { return transposed ? "T" : "N"; };
  const auto size = [](std::int64_t n) { return static_cast<int>(n); };
  const int m = size(p.n), n = size(p.m), k = size(p.k);
  const int a_stride = size(p.b_stride), b_stride = size(p.a_stride), c_stride = size(p.c_stride);
  const float one = 1, beta = p.accumulate ? 1 : 0;
  sgemm_(way(p.b_transposed), way(p.a_transposed), &m, &n, &k, &one, p.b, &a_stride, p.a, &b_stride, &beta, p.c,
         &c_stride);
}

double cost(const Product& p) {
  return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(std::max<std::int64_t>(p.k, 1));
}

/// Rows [begin, end) of a product.
Product panel(Product p, std::int64_t begin, std::int64_t end) {
  p.a += begin * (p.a_transposed ? 1 : p.a_stride);
  p.c += begin * p.c_stride;
  p.m = end - begin;
  return p;
}

}  // namespace

void multiply_all(const std::vector<Product>& products) {
  constexpr std::int64_t fewest_rows = 64;  // per panel: with fewer rows, the product is slower
  const std::int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  double total = 0;
  for (const Product& p : products) total += cost(p);
  if (ProductWatcher* const watcher = product_watcher.load(std::memory_order_acquire)) [[unlikely]]
    for (const Product& p : products) watcher->product(p.m, p.n, p.k, sizeof(float), nullptr, nullptr);
  const double largest = total / static_cast<double>(4 * threads);
  std::vector<Product> tasks;
  for (const Product& p : products) {
    if (p.m == 0 || p.n == 0) continue;
    std::int64_t panels = 1;
    if (threads > 1 && cost(p) > largest)
      panels = std::clamp<std::int64_t>(static_cast<std::int64_t>(cost(p) / largest + 0.999), 1,
                                        std::max<std::int64_t>(1, p.m / fewest_rows));
    // Cut at multiples of 16, so that only a few different numbers of rows occur.
    const auto cut = [&](std::int64_t i) { return i == panels ? p.m : i * p.m / panels / 16 * 16; };
    for (std::int64_t i = 0; i < panels; ++i) tasks.push_back(panel(p, cut(i), cut(i + 1)));
  }
  if (tasks.empty()) return;
  std::stable_sort(tasks.begin(), tasks.end(), [](const Product& a, const Product& b) { return cost(a) > cost(b); });
  std::atomic<std::size_t> next = 0;
  const auto count = static_cast<std::int64_t>(tasks.size());
  // In a parallel region of one thread BLAS would start its own threads, which is intended here.
  parallel_for(0, std::min(threads, count), 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t i = next++; i < tasks.size(); i = next++) multiply_here(tasks[i]);
  });
}

}  // namespace tessera::nn
