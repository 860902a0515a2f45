#include <tessera/nn/moe/grouped_products.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tessera/nn/gemm.h>
#include <tessera/nn/product_watch.h>

#include <algorithm>
#include <atomic>

namespace at::native {
void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}  // namespace at::native

/// The BLAS inside libtorch_cpu.so (MKL); within a parallel region it runs on the calling thread alone.
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

void multiply_here(const Product& p) {
  if (p.k == 0) {
    if (!p.accumulate)
      for (std::int64_t r = 0; r < p.m; ++r) std::fill_n(p.c + r * p.c_stride, p.n, 0.0f);
    return;
  }
  if (multiplies_with_onednn()) {
    at::native::mkldnn_matmul(matrix(p.a, p.a_stride, p.a_transposed, p.m, p.k),
                              matrix(p.b, p.b_stride, p.b_transposed, p.k, p.n),
                              matrix(p.c, p.c_stride, false, p.m, p.n), p.accumulate ? 1 : 0, 1);
    return;
  }
  // BLAS counts columns first: c^T = b^T a^T.
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
  constexpr std::int64_t fewest_rows = 64;  // in a panel: with fewer the product loses speed
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
    for (std::int64_t i = 0; i < panels; ++i) tasks.push_back(panel(p, i * p.m / panels, (i + 1) * p.m / panels));
  }
  if (tasks.empty()) return;
  std::stable_sort(tasks.begin(), tasks.end(), [](const Product& a, const Product& b) { return cost(a) > cost(b); });
  std::atomic<std::size_t> next = 0;
  const auto count = static_cast<std::int64_t>(tasks.size());
  // In a parallel region of one thread BLAS would start threads of its own: then that is what it should do.
  at::parallel_for(0, std::min(threads, count), 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t i = next++; i < tasks.size(); i = next++) multiply_here(tasks[i]);
  });
}

}  // namespace tessera::nn
