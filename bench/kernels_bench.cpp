/// \file Every kernel of kernels/cpu on one thread, with every instruction set of this machine, relative to its bound:
/// bytes divided by the memory bandwidth that a copy of the same size reaches here (printed first). A share above 100 %
/// means that the operands came from a cache. Attention's bound is arithmetic: the FLOP of the unmasked scores divided
/// by the rate of multiply-adds on registers. Google Benchmark's flags apply, e.g. --benchmark_filter=adamw.

#include <benchmark/benchmark.h>
#include <tessera/kernels/cpu/binned_sums.h>
#include <tessera/kernels/cpu/dispatch.h>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace tessera::kernels;

namespace {

constexpr std::int64_t n = std::int64_t{8} << 20;  // 32 MB per operand, so that they come from memory

std::vector<float> random(std::int64_t size) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<std::size_t>(size));
  for (float& x : out) x = normal(engine);
  return out;
}

/// Bytes per second of memcpy (read + write), best of several.
double memory_bandwidth() {
  static const double measured = [] {
    std::vector<float> from(n, 1.0f), to(n, 2.0f);
    double best = 0;
    for (int i = 0; i < 8; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      std::memcpy(to.data(), from.data(), n * sizeof(float));
      benchmark::DoNotOptimize(to.data());
      best = std::max(best, 2 * n * sizeof(float) /
                                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  }();
  return measured;
}

/// Runs `body` under the benchmark's clock; `bytes`: minimum traffic of one call.
template <class F>
void measure(benchmark::State& state, double bytes, const F& body) {
  for (auto _ : state) {
    body();
    benchmark::ClobberMemory();
  }
  const double total = bytes * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(total * 1e-9, benchmark::Counter::kIsRate);
  state.counters["%bound"] = benchmark::Counter(100 * total / memory_bandwidth(), benchmark::Counter::kIsRate);
}

#if defined(__x86_64__)
/// FLOP/s of independent multiply-adds of vectors of `Vector`, best of several.
template <class Vector>
inline __attribute__((always_inline)) double multiply_adds() {
  constexpr int sums = 12, steps = 1 << 16;
  double best = 0;
  for (int repeat = 0; repeat < 8; ++repeat) {
    Vector sum[sums] = {}, x = {}, y = {};
    x += 0.5f, y += 0.25f;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i)
#pragma GCC unroll 12
      for (int j = 0; j < sums; ++j) sum[j] = sum[j] * x + y;
    for (int j = 1; j < sums; ++j) sum[0] += sum[j];
    float first = sum[0][0];
    benchmark::DoNotOptimize(first);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, 2.0 * sums * steps * static_cast<double>(sizeof(Vector) / sizeof(float)) / seconds);
  }
  return best;
}
__attribute__((target("avx2,fma"))) double avx2_rate() {
  using Vector __attribute__((vector_size(32))) = float;
  return multiply_adds<Vector>();
}
__attribute__((target("avx512f"))) double avx512_rate() {
  using Vector __attribute__((vector_size(64))) = float;
  return multiply_adds<Vector>();
}
double arithmetic_rate(Isa isa) { return isa == Isa::avx512 ? avx512_rate() : isa == Isa::avx2 ? avx2_rate() : 0; }
#else
double arithmetic_rate(Isa) { return 0; }
#endif

/// Attention of one causal head over `tokens` tokens.
void add_attention(const Table& k, Isa isa, std::int64_t tokens) {
  constexpr std::int64_t size = 64;
  const std::string of = std::to_string(tokens) + "/" + isa_name(isa);
  const double rate = arithmetic_rate(isa), flop = 2.0 * size * static_cast<double>(tokens * (tokens + 1) / 2);
  for (const bool backward : {false, true}) {
    // products, forward: scores, results; backward: scores, dv, dp, dq, dk
    const double all = (backward ? 5 : 2) * flop;
    benchmark::RegisterBenchmark(
        ((backward ? "attention_backward_" : "attention_") + of).c_str(), [=, &k](benchmark::State& s) {
          const auto q = random(tokens * size), keys = random(tokens * size), v = random(tokens * size);
          std::vector<float> out(q.size()), dq(q.size()), dk(q.size()), dv(q.size()), sums(tokens),
              scratch(attention_scratch(tokens, size) + 16);
          auto* const aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64 / 4;
          const AttentionHead head{q.data(), keys.data(), v.data(), size,   size, size,
                                   tokens,   tokens,      size,     0.125f, true};
          k.attention(head, 0, tokens, out.data(), size, sums.data(), aligned);
          for (auto _ : s) {
            if (backward)
              k.attention_backward(
                  head,
                  {out.data(), v.data(), size, size, sums.data(), dq.data(), dk.data(), dv.data(), size, size, size},
                  aligned);
            else
              k.attention(head, 0, tokens, out.data(), size, sums.data(), aligned);
            benchmark::ClobberMemory();
          }
          const double total = all * static_cast<double>(s.iterations());
          s.counters["GFLOP/s"] = benchmark::Counter(total * 1e-9, benchmark::Counter::kIsRate);
          if (rate > 0) s.counters["%bound"] = benchmark::Counter(100 * total / rate, benchmark::Counter::kIsRate);
        });
  }
}

void add_benchmarks(Isa isa) {
  const Table& k = table(isa);
  for (const std::int64_t tokens : {256, 1024}) add_attention(k, isa, tokens);
  const auto name = [&](const char* kernel) { return std::string(kernel) + "/" + isa_name(isa); };
  constexpr std::int64_t columns = 1024, rows = n / columns, vocabulary = 8192;
  benchmark::RegisterBenchmark(name("adamw").c_str(), [&k](benchmark::State& s) {
    auto p = random(n), m = random(n), v = std::vector<float>(n, 1.0f);
    const auto g = random(n);
    measure(s, 7.0 * n * 4,
            [&] { k.adamw(p.data(), g.data(), m.data(), v.data(), n, {.weight_decay = 0.1, .step = 10}); });
  });
  benchmark::RegisterBenchmark(name("sgd_momentum").c_str(), [&k](benchmark::State& s) {
    auto p = random(n), b = random(n);
    const auto g = random(n);
    measure(s, 5.0 * n * 4, [&] { k.sgd(p.data(), g.data(), b.data(), n, {.momentum = 0.9}); });
  });
  for (const bool stochastic : {false, true})
    benchmark::RegisterBenchmark(
        name(stochastic ? "adamw_bf16_stochastic" : "adamw_bf16").c_str(), [&k, stochastic](benchmark::State& s) {
          auto p = random(n);
          std::vector<std::uint16_t> m(n), v(n);
          const auto g = random(n);
          measure(s, (3.0 * 4 + 4 * 2) * n,
                  [&] { k.adamw_bf16(p.data(), g.data(), m.data(), v.data(), n, {.step = 10}, {stochastic, 1, 0}); });
        });
  for (const FourBits type : {FourBits::nf4, FourBits::fp4}) {
    const char* const four = type == FourBits::nf4 ? "nf4" : "fp4";
    const auto of = [&](const char* what) { return name((std::string(what) + "_" + four).c_str()); };
    const double bytes = n * 4.5 + 4.0 * n / four_bit_block;  // fp32 values on one side, codes and absmax on the other
    benchmark::RegisterBenchmark(of("quantize").c_str(), [&k, type, bytes](benchmark::State& s) {
      const auto x = random(n);
      std::vector<std::uint8_t> codes(n / 2);
      std::vector<float> absmax(n / four_bit_block);
      measure(s, bytes, [&] { k.quantize_four_bits(x.data(), n, type, codes.data(), absmax.data()); });
    });
    benchmark::RegisterBenchmark(of("dequantize").c_str(), [&k, type, bytes](benchmark::State& s) {
      auto y = random(n);
      std::vector<std::uint8_t> codes(n / 2);
      std::vector<float> absmax(n / four_bit_block);
      k.quantize_four_bits(y.data(), n, type, codes.data(), absmax.data());
      measure(s, bytes, [&] { k.dequantize_four_bits(codes.data(), absmax.data(), n, type, y.data()); });
    });
  }
  benchmark::RegisterBenchmark(name("quantize_int8").c_str(), [&k](benchmark::State& s) {
    const auto x = random(n);
    std::vector<std::int8_t> codes(n);
    std::vector<float> absmax(rows);
    measure(s, 5.0 * n, [&] { k.quantize_int8_rows(x.data(), rows, columns, codes.data(), absmax.data()); });
  });
  benchmark::RegisterBenchmark(name("dequantize_int8").c_str(), [&k](benchmark::State& s) {
    auto y = random(n);
    std::vector<std::int8_t> codes(n);
    std::vector<float> absmax(rows);
    k.quantize_int8_rows(y.data(), rows, columns, codes.data(), absmax.data());
    measure(s, 5.0 * n, [&] { k.dequantize_int8_rows(codes.data(), absmax.data(), rows, columns, y.data()); });
  });
  benchmark::RegisterBenchmark(name("lion").c_str(), [&k](benchmark::State& s) {
    auto p = random(n), m = random(n);
    const auto g = random(n);
    measure(s, 5.0 * n * 4, [&] { k.lion(p.data(), g.data(), m.data(), n, {.weight_decay = 0.1}); });
  });
  benchmark::RegisterBenchmark(name("adagrad").c_str(), [&k](benchmark::State& s) {
    auto p = random(n), sum = std::vector<float>(n, 1.0f);
    const auto g = random(n);
    measure(s, 5.0 * n * 4, [&] { k.adagrad(p.data(), g.data(), sum.data(), n, {}); });
  });
  benchmark::RegisterBenchmark(name("lamb_moments").c_str(), [&k](benchmark::State& s) {
    auto m = random(n), v = std::vector<float>(n, 1.0f);
    const auto p = random(n), g = random(n);
    std::vector<double> sums(n / square_block), others(n / square_block);
    measure(s, 6.0 * n * 4, [&] {
      k.lamb_moments(p.data(), g.data(), m.data(), v.data(), n, {.step = 10}, sums.data(), others.data());
    });
  });
  benchmark::RegisterBenchmark(name("lamb_apply").c_str(), [&k](benchmark::State& s) {
    auto p = random(n);
    const auto m = random(n), v = std::vector<float>(n, 1.0f);
    measure(s, 4.0 * n * 4, [&] { k.lamb_apply(p.data(), m.data(), v.data(), n, {.step = 10}, 0.5); });
  });
  benchmark::RegisterBenchmark(name("bin_squares").c_str(), [&k](benchmark::State& s) {
    const auto g = random(n);
    std::vector<double> row_bins(bin_count * rows), column_bins(bin_count * columns + 8);
    measure(s, 1.0 * n * 4, [&] {
      k.bin_squares(g.data(), 1, 0, n, {row_bins.data(), rows, column_bins.data(), columns, columns, rows});
      carry_bins(column_bins.data(), columns);
    });
  });
  benchmark::RegisterBenchmark(name("block_squares").c_str(), [&k](benchmark::State& s) {
    const auto x = random(n);
    std::vector<double> sums(n / square_block);
    measure(s, 1.0 * n * 4, [&] { k.block_squares(x.data(), n, sums.data()); });
  });
  benchmark::RegisterBenchmark(name("softmax_cross_entropy").c_str(), [&k](benchmark::State& s) {
    auto x = random(n);
    const std::vector<std::int64_t> targets(n / vocabulary, 5);
    measure(s, 2.0 * n * 4, [&] {
      benchmark::DoNotOptimize(
          k.softmax_cross_entropy(x.data(), targets.data(), n / vocabulary, vocabulary, 1e-3f, true));
    });
  });
  benchmark::RegisterBenchmark(name("gelu_tanh").c_str(), [&k](benchmark::State& s) {
    const auto x = random(n), bias = random(columns);
    std::vector<float> y(n);
    measure(s, 2.0 * n * 4, [&] { k.gelu_tanh(x.data(), bias.data(), y.data(), rows, columns); });
  });
  benchmark::RegisterBenchmark(name("gelu_tanh_backward").c_str(), [&k](benchmark::State& s) {
    const auto x = random(n), bias = random(columns), dy = random(n);
    std::vector<float> dx(n), dbias(columns);
    measure(s, 3.0 * n * 4,
            [&] { k.gelu_tanh_backward(x.data(), bias.data(), dy.data(), dx.data(), dbias.data(), rows, columns); });
  });
  benchmark::RegisterBenchmark(name("layer_norm").c_str(), [&k](benchmark::State& s) {
    const auto x = random(n), delta = random(n), w = random(columns);
    std::vector<float> sum(n), y(n), mean(rows), rstd(rows);
    measure(s, 4.0 * n * 4, [&] {
      k.layer_norm(
          {x.data(), delta.data(), w.data(), w.data(), w.data(), 1e-5, sum.data(), y.data(), mean.data(), rstd.data()},
          rows, columns);
    });
  });
  benchmark::RegisterBenchmark(name("layer_norm_backward").c_str(), [&k](benchmark::State& s) {
    const auto x = random(n), dy = random(n), dsum = random(n), w = random(columns);
    std::vector<float> dx(n), mean(rows, 0.0f), rstd(rows, 1.0f), dw(columns), db(columns), dd(columns);
    measure(s, 4.0 * n * 4, [&] {
      k.layer_norm_backward({x.data(), dy.data(), dsum.data(), w.data(), mean.data(), rstd.data(), dx.data(), dw.data(),
                             db.data(), dd.data()},
                            rows, columns);
    });
  });
  benchmark::RegisterBenchmark(name("column_sums").c_str(), [&k](benchmark::State& s) {
    const auto x = random(n);
    std::vector<float> sums(columns);
    measure(s, 1.0 * n * 4, [&] { k.column_sums(x.data(), sums.data(), rows, columns); });
  });
  benchmark::RegisterBenchmark(name("add_rows").c_str(), [&k](benchmark::State& s) {
    const auto x = random(n), delta = random(n), bias = random(columns);
    std::vector<float> y(n);
    measure(s, 3.0 * n * 4, [&] { k.add_rows(x.data(), delta.data(), bias.data(), y.data(), rows, columns); });
  });
  // Collectives: (inputs + outputs) x 32 MB. Without `stream`, overwritten memory is also read: the bound for two
  // inputs is then 75 %.
  struct Case {
    const char* name;
    Number number;
    int inputs, outputs;
    bool stream;
  };
  for (const Case c :
       {Case{"reduce_fp32_2", Number::fp32, 2, 1, false}, Case{"reduce_fp32_2_stream", Number::fp32, 2, 1, true},
        Case{"reduce_fp32_2_to_2_stream", Number::fp32, 2, 2, true},
        Case{"reduce_fp32_8_stream", Number::fp32, 8, 1, true}, Case{"reduce_bf16_2_stream", Number::bf16, 2, 1, true},
        Case{"reduce_fp16_2_stream", Number::fp16, 2, 1, true}})
    benchmark::RegisterBenchmark(name(c.name).c_str(), [&k, c](benchmark::State& s) {
      const std::vector<std::vector<float>> x(static_cast<std::size_t>(c.inputs), std::vector<float>(n, 0.0f));
      std::vector<std::vector<float>> y(static_cast<std::size_t>(c.outputs), std::vector<float>(n));
      std::vector<const void*> inputs;
      for (const auto& v : x) inputs.push_back(v.data());
      std::vector<void*> outputs;
      for (auto& v : y) outputs.push_back(v.data());
      const Reduce what{.number = c.number,
                        .inputs = inputs.data(),
                        .input_count = c.inputs,
                        .outputs = outputs.data(),
                        .output_count = c.outputs,
                        .stream = c.stream};
      measure(s, 4.0 * n * (c.inputs + c.outputs), [&] { k.reduce(what, n * 4 / size_of(c.number)); });
    });
  benchmark::RegisterBenchmark(name("stream_copy").c_str(), [&k](benchmark::State& s) {
    const auto x = std::vector<float>(n, 1.0f);
    std::vector<float> y(n);
    measure(s, 2.0 * n * 4, [&] { k.stream_copy(y.data(), x.data(), n * 4); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("memcpy GB/s", std::to_string(memory_bandwidth() * 1e-9));
  for (const Isa isa : supported_isas()) add_benchmarks(isa);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
