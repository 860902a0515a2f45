/// \file One step of every optimizer, and the gradient norm, on one thread: GB/s of the minimum traffic, and its share
/// of the bandwidth that a copy reaches here (printed first). The parameters are those of a GPT-2 of width 768:
/// matrices 768 x 3072, and vectors; 19 million elements, 76 MB per operand, so they come from memory. torch_* are
/// ATen's own fused updates on the same parameters. Google Benchmark's flags apply, e.g. --benchmark_filter=adam.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <tessera/optim/optimizer.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using namespace tessera::optim;

namespace {

std::vector<Slot> make_slots() {
  std::vector<Slot> slots;
  for (int i = 0; i < 8; ++i)
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{768, 3072}, {3072}, {768}}) {
      const at::Tensor p = at::randn(shape);
      p.mutable_grad() = at::randn(shape);
      slots.push_back({"p" + std::to_string(slots.size()), p, 0.1});
    }
  return slots;
}

double element_count(const std::vector<Slot>& slots) {
  double n = 0;
  for (const Slot& slot : slots) n += static_cast<double>(slot.parameter.numel());
  return n;
}

/// Bytes per second of memcpy (read + write), best of several.
double memory_bandwidth() {
  static const double measured = [] {
    constexpr std::size_t bytes = std::size_t{64} << 20;
    std::vector<char> from(bytes, 1), to(bytes, 2);
    double best = 0;
    for (int i = 0; i < 8; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      std::memcpy(to.data(), from.data(), bytes);
      benchmark::DoNotOptimize(to.data());
      best =
          std::max(best, 2.0 * bytes / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  }();
  return measured;
}

template <class F>
void measure(benchmark::State& state, double bytes, const F& body) {
  body();  // the first call allocates and touches the states
  for (auto _ : state) body();
  const double total = bytes * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(total * 1e-9, benchmark::Counter::kIsRate);
  state.counters["%bound"] = benchmark::Counter(100 * total / memory_bandwidth(), benchmark::Counter::kIsRate);
}

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Slot>)>;

/// `bytes`: minimum traffic per element.
void add(const std::string& name, double bytes, const Make& make) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const auto slots = make_slots();
    const auto optimizer = make(slots);
    measure(state, bytes * element_count(slots), [&] { optimizer->step(1e-3, 0.9); });
  })->Unit(benchmark::kMillisecond);
}

void add_torch_adamw() {
  benchmark::RegisterBenchmark("torch_fused_adamw", [](benchmark::State& state) {
    std::vector<at::Tensor> p, g, m, v, most, steps;
    const auto slots = make_slots();
    for (const Slot& slot : slots) {
      p.push_back(slot.parameter);
      g.push_back(slot.parameter.grad());
      m.push_back(at::zeros_like(slot.parameter));
      v.push_back(at::zeros_like(slot.parameter));
      steps.push_back(at::ones({}));
    }
    measure(state, 28 * element_count(slots),
            [&] { at::_fused_adamw_(p, g, m, v, most, steps, 1e-3, 0.9, 0.999, 0.1, 1e-8, false, false); });
  })->Unit(benchmark::kMillisecond);
}

void add_norm() {
  benchmark::RegisterBenchmark("gradient_norm", [](benchmark::State& state) {
    const auto slots = make_slots();
    std::vector<at::Tensor> gradients;
    for (const Slot& slot : slots) gradients.push_back(slot.parameter.grad());
    measure(state, 4 * element_count(slots), [&] { benchmark::DoNotOptimize(gradient_norm(gradients)); });
  })->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  at::set_num_threads(1);
  benchmark::AddCustomContext("memcpy GB/s", std::to_string(memory_bandwidth() * 1e-9));
  const CommonOptions bf16{.bf16_state = true}, nearest{.bf16_state = true, .stochastic_rounding = false};
  const CommonOptions eight{.eight_bit_state = true};
  add("adamw", 28, [](auto s) { return make_adamw(std::move(s), {}); });
  add_torch_adamw();
  add("adam", 28, [](auto s) { return make_adam(std::move(s), {}); });
  add("adamw_bf16", 20, [=](auto s) { return make_adamw(std::move(s), {}, nearest); });
  add("adamw_bf16_stochastic", 20, [=](auto s) { return make_adamw(std::move(s), {}, bf16); });
  add("adamw_8bit", 16.25, [=](auto s) { return make_adamw(std::move(s), {}, eight); });
  add("sgd", 12, [](auto s) { return make_sgd(std::move(s), {}); });
  add("sgd_momentum", 20, [](auto s) { return make_sgd(std::move(s), {.momentum = 0.9}); });
  add("sgd_momentum_bf16_stochastic", 16, [=](auto s) { return make_sgd(std::move(s), {.momentum = 0.9}, bf16); });
  add("adagrad", 20, [](auto s) { return make_adagrad(std::move(s), {}); });
  add("lion", 20, [](auto s) { return make_lion(std::move(s), {}); });
  add("lion_bf16_stochastic", 16, [=](auto s) { return make_lion(std::move(s), {}, bf16); });
  add("lion_8bit", 14.125, [=](auto s) { return make_lion(std::move(s), {}, eight); });
  add("lamb", 24 + 16, [](auto s) { return make_lamb(std::move(s), {}); });
  add("lars", 8 + 20, [](auto s) { return make_lars(std::move(s), {}); });
  add("adafactor", 4 + 4 + 12, [](auto s) { return make_adafactor(std::move(s), {}); });
  add("adafactor_scaled_moment", 4 + 4 + 4 + 20,
      [](auto s) { return make_adafactor(std::move(s), {.beta1 = 0.9, .scale_parameter = true}); });
  add_norm();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
