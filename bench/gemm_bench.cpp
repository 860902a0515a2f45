/// \file
/// The matrix products of a GPT-2 step (4 layers x 256, vocabulary 8192, 2048 tokens) with the two libraries inside
/// LibTorch: GFLOP per CPU second of at::mm (MKL) and of nn::multiply (oneDNN if selected). Argument: threads (default
/// 1).

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <tessera/nn/gemm.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Shape {
  const char* name;
  bool a_transposed, b_transposed;
  std::int64_t m, k, n;
};
constexpr Shape shapes[] = {
    {"qkv forward", false, false, 2048, 256, 768},  {"qkv dx", false, true, 2048, 768, 256},
    {"qkv dW", true, false, 256, 2048, 768},        {"projection forward", false, false, 2048, 256, 256},
    {"projection dx", false, true, 2048, 256, 256}, {"projection dW", true, false, 256, 2048, 256},
    {"fc1 forward", false, false, 2048, 256, 1024}, {"fc1 dx", false, true, 2048, 1024, 256},
    {"fc1 dW", true, false, 256, 2048, 1024},       {"fc2 forward", false, false, 2048, 1024, 256},
    {"fc2 dx", false, true, 2048, 256, 1024},       {"fc2 dW", true, false, 1024, 2048, 256},
    {"head forward", false, true, 256, 256, 8192},  {"head dx", false, false, 256, 8192, 256},
    {"head dW", true, false, 8192, 256, 256},
};

/// Best GFLOP per CPU second of several runs of `multiply`.
template <class F>
double measure(const Shape& s, const F& multiply) {
  const double flops = 2.0 * static_cast<double>(s.m * s.k * s.n);
  const int repeats = std::max(1, static_cast<int>(2e9 / flops));
  double best = 0;
  for (int run = 0; run < 4; ++run) {
    const double begin = cpu_seconds();
    for (int i = 0; i < repeats; ++i) multiply();
    best = std::max(best, flops * repeats / (cpu_seconds() - begin) * 1e-9);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  std::printf("nn::multiply uses %s\n%-20s %18s %8s %8s\n", tessera::nn::multiplies_with_onednn() ? "oneDNN" : "MKL",
              "product", "m x k x n", "at::mm", "multiply");
  for (const Shape& s : shapes) {
    const at::Tensor a = s.a_transposed ? at::randn({s.k, s.m}).t() : at::randn({s.m, s.k});
    const at::Tensor b = s.b_transposed ? at::randn({s.n, s.k}).t() : at::randn({s.k, s.n});
    at::Tensor out = at::empty({s.m, s.n});
    const double mkl = measure(s, [&] { at::mm_out(out, a, b); });
    const double ours = measure(s, [&] { tessera::nn::multiply(out, a, b); });
    std::printf("%-20s %6ld x%5ld x%5ld %8.1f %8.1f\n", s.name, static_cast<long>(s.m), static_cast<long>(s.k),
                static_cast<long>(s.n), mkl, ours);
  }
  return 0;
}
