/// \file Products of groups of rows (nn/moe/grouped.h) compared with one dense product with the same number of FLOP and
/// with a loop of products, one for each expert: forward, gradient of the rows, gradient of the weights; with an even
/// load and with a Zipf distribution (expert i gets a share of 1 / i). Prints GFLOP/s of wall time (the best of several
/// rounds, in which the variants alternate) and the ratios to the dense product.
///
///   moe_bench [threads 2] [rows 4096] [experts 8] [C 512] [F 1408]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/nn/nn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using Tensors = std::vector<at::Tensor>;

at::Tensor even(std::int64_t rows, std::int64_t experts) {
  at::Tensor counts = at::full({experts}, rows / experts, at::kLong);
  counts[0] += rows % experts;
  return counts;
}

at::Tensor zipf(std::int64_t rows, std::int64_t experts) {
  const at::Tensor shares = at::arange(1, experts + 1, at::kDouble).reciprocal();
  at::Tensor counts = (shares / shares.sum() * static_cast<double>(rows)).floor().to(at::kLong);
  counts[0] += rows - counts.sum().item<std::int64_t>();
  return counts;
}

at::Tensor looped(const at::Tensor& x, const at::Tensor& counts, const Tensors& weights) {
  Tensors parts;
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    const std::int64_t rows = counts.const_data_ptr<std::int64_t>()[e];
    parts.push_back(nn::linear(x.slice(0, begin, begin + rows), weights[e], {}, nn::WeightLayout::out_in));
    begin += rows;
  }
  return at::cat(parts);
}

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Way {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x)> forward;
  Tensors weights;
  double best[3] = {1e30, 1e30, 1e30};  // forward, rows, weights
};

/// Times forward, and backward separately for the rows and for the weights.
void measure(Way& way, const at::Tensor& x, const at::Tensor& dy) {
  {
    const at::NoGradGuard no_grad;
    way.best[0] = std::min(way.best[0], seconds([&] { way.forward(x); }));
  }
  for (const int what : {1, 2}) {
    at::Tensor rows = x.detach();
    rows.set_requires_grad(what == 1);
    for (at::Tensor& w : way.weights) w.set_requires_grad(what == 2);
    const at::Tensor y = way.forward(rows);
    const Tensors inputs = what == 1 ? Tensors{rows} : way.weights;
    way.best[what] = std::min(way.best[what], seconds([&] { torch::autograd::grad({y}, inputs, {dy}); }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  at::set_num_threads(static_cast<int>(argument(1, 2)));
  const std::int64_t rows = argument(2, 4096), experts = argument(3, 8), in = argument(4, 512), out = argument(5, 1408);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  const at::Tensor x = at::randn({rows, in}), dy = at::randn({rows, out});
  Tensors weights;
  for (std::int64_t e = 0; e < experts; ++e) weights.push_back(at::randn({out, in}));
  std::printf("%ld rows, %ld experts, %ld -> %ld, %d threads\n%-22s %10s %10s %10s   shares of the dense product\n",
              static_cast<long>(rows), static_cast<long>(experts), static_cast<long>(in), static_cast<long>(out),
              at::get_num_threads(), "GFLOP/s", "forward", "d rows", "d weights");
  for (const auto& [load, counts] : {std::pair("even", even(rows, experts)), {"Zipf", zipf(rows, experts)}}) {
    const at::Tensor dense = at::randn({out, in});
    std::vector<Way> ways;
    ways.push_back({"dense",
                    [dense](const at::Tensor& r) { return nn::linear(r, dense, {}, nn::WeightLayout::out_in); },
                    {dense}});
    ways.push_back({std::string("grouped, ") + load,
                    [&, counts = counts](const at::Tensor& r) { return nn::grouped_linear(r, counts, weights); },
                    weights});
    ways.push_back({std::string("loop, ") + load,
                    [&, counts = counts](const at::Tensor& r) { return looped(r, counts, weights); }, weights});
    for (int round = 0; round < 12; ++round)
      for (Way& way : ways) measure(way, x, dy);
    for (const Way& way : ways) {
      std::printf("%-22s", way.name.c_str());
      for (const double t : way.best) std::printf(" %10.1f", flops / t * 1e-9);
      for (int i = 0; i < 3; ++i) std::printf("  %5.2f", ways[0].best[i] / way.best[i]);
      std::printf("\n");
    }
  }
  return 0;
}
