// Eight bits on the simulated device, or on a real card: operands rounded by the kernels are the CPU's bit for bit,
// and a linear map gives the CPU's results.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/linear_maps/fp8_linear.h>
#include <tessera/nn/weight_gradients.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>

#include <functional>

namespace tessera::testing {
namespace {

using nn::Fp8Operand;
using Tensors = std::vector<at::Tensor>;

const c10::Device cuda(c10::kCUDA, 0);

nn::Fp8Options options(Fp8Recipe recipe, Fp8Format format = Fp8Format::hybrid, std::int64_t margin = 0) {
  nn::Fp8Options o;
  o.format = format;
  o.recipe = recipe;
  o.margin = margin;
  return o;
}
std::shared_ptr<nn::Fp8State> state_on(c10::Device device, const nn::Fp8Options& o) {
  return std::make_shared<nn::Fp8State>(o, 2, device);
}

/// The bits to which a map rounds x, and its scale.
Tensors rounded(const std::shared_ptr<nn::Fp8State>& state, const at::Tensor& x, Fp8Operand operand) {
  const c10::Device device = state->noted().device();
  const nn::Fp8Tensor out = nn::Fp8Map(state, 1).rounded(x.to(device), operand, /*note=*/true);
  EXPECT_TRUE(out.values.is_contiguous());
  return {out.values.cpu().view(at::kByte), out.scale.cpu()};
}

TEST(DeviceFp8, OperandsAreTheCpusBitForBit) {
  on_the_double([] {
    at::manual_seed(1);
    for (const Fp8Recipe recipe : {Fp8Recipe::delayed, Fp8Recipe::tensorwise}) {
      for (const std::int64_t margin : {0, 3}) {
        const auto o = options(recipe, Fp8Format::hybrid, margin);
        const auto cpu = state_on(c10::kCPU, o), device = state_on(cuda, o);
        for (const double size : {1.0, 1e-3, 40.0, 0.0}) {  // four steps
          for (const auto operand : {Fp8Operand::input, Fp8Operand::weight, Fp8Operand::gradient}) {
            for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
              const at::Tensor x = (at::randn({70, 36}) * size).to(type);
              for (const at::Tensor& matrix : {x, x.t(), x.slice(1, 0, 33)}) {
                const Tensors a = rounded(cpu, matrix, operand), b = rounded(device, matrix, operand);
                EXPECT_TRUE(a[0].equal(b[0])) << size << " " << type;
                EXPECT_TRUE(a[1].equal(b[1])) << a[1] << b[1];
              }
            }
          }
          EXPECT_TRUE(cpu->noted().equal(device->noted().cpu()));
          cpu->end_step();
          device->end_step();
          EXPECT_TRUE(cpu->history().equal(device->history().cpu()));
        }
      }
    }
  });
}

struct Layer {
  std::int64_t rows, in, out;
  nn::WeightLayout layout;
};
const std::vector<Layer> layers = {{48, 32, 64, nn::WeightLayout::out_in},
                                   {48, 32, 64, nn::WeightLayout::in_out},
                                   {45, 36, 20, nn::WeightLayout::out_in},  // at::_scaled_mm rejects these sizes
                                   {45, 36, 20, nn::WeightLayout::in_out}};

/// y, then the gradients of input, weight and bias, twice, with a step's end in between; on the CPU.
Tensors results(const Layer& layer, const nn::Fp8Options& o, c10::Device device, bool bf16, bool frozen) {
  at::manual_seed(3);
  const auto state = state_on(device, o);
  Tensors all;
  for (int step = 0; step < 2; ++step) {
    const bool out_first = layer.layout == nn::WeightLayout::out_in;
    const auto leaf = [&](const at::Tensor& x) { return x.to(device).requires_grad_(true); };
    const at::Tensor x = leaf(at::randn({layer.rows / 3, 3, layer.in})), bias = leaf(at::randn({layer.out})),
                     weight = leaf(out_first ? at::randn({layer.out, layer.in}) : at::randn({layer.in, layer.out})),
                     dy = (at::randn({layer.rows / 3, 3, layer.out}) * 1e-3).to(at::kBFloat16).to(device);
    if (frozen) weight.requires_grad_(false);
    at::Tensor y;
    {
      const nn::Autocast narrow(bf16, device.type());
      const nn::Fp8Scope scope(std::make_shared<nn::Fp8Map>(state, step), /*training=*/true);
      y = nn::linear(x, weight, bias, layer.layout);
    }
    if (bf16 && device.is_cuda()) EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    const std::size_t waits = cuda_double::waits();
    y.backward(dy.to(y.scalar_type()));
    EXPECT_EQ(cuda_double::waits(), waits);
    EXPECT_EQ(weight.grad().defined(), !frozen);
    for (const at::Tensor& t : {y.detach(), x.grad(), weight.grad(), bias.grad()})
      if (t.defined()) all.push_back(t.cpu().to(at::kFloat));
    all.push_back(state->noted().cpu().clone());  // end_step() clears it
    state->end_step();
  }
  return all;
}

void expect_close(const Tensors& device, const Tensors& cpu, double bound) {
  ASSERT_EQ(device.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i)
    EXPECT_LE((device[i] - cpu[i]).abs().max().item<double>(), bound * cpu[i].abs().max().item<double>()) << i;
}

// The operands have the same bits, so only the order of sums differs; in bf16 also the rounding of the result and the
// bias. Sums of a card's products in eight bits keep about 14 bits (DeepSeek-V3 Technical Report, 3.3.2).
TEST(DeviceFp8, LinearMapsGiveWhatTheCpusGive) {
  on_the_double([] {
    const double exact = cuda_double::is_double() ? 1e-6 : 2e-3;
    for (const Layer& layer : layers) {
      for (const Fp8Recipe recipe : {Fp8Recipe::delayed, Fp8Recipe::tensorwise}) {
        for (const Fp8Format format : {Fp8Format::hybrid, Fp8Format::e4m3}) {
          const auto o = options(recipe, format);
          for (const bool frozen : {false, true})
            expect_close(results(layer, o, cuda, false, frozen), results(layer, o, c10::kCPU, false, frozen), exact);
          // Sizes that at::_scaled_mm does not accept are rounded only in the result.
          expect_close(results(layer, o, cuda, true, false), results(layer, o, c10::kCPU, true, false),
                       layer.in % 16 == 0 ? 6e-3 : 4e-3);
        }
      }
    }
  });
}

/// Runs maps 0 and 1 on a device, one after the other. Returns whether they reuse the same rounded x, and checks that
/// the history equals that of the CPU, where each map rounds x separately.
bool shares(const at::Tensor& first, const std::function<at::Tensor(const at::Tensor&)>& second, bool note = true,
            bool first_turned = true) {
  const auto o = options(Fp8Recipe::delayed);
  const auto cpu = state_on(c10::kCPU, o), device = state_on(cuda, o);
  bool shared = false;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = (first * (step + 1)).to(cuda);
    const auto& kernels = *nn::Fp8Map(device, 0).kernels(x);
    const at::Tensor here = x.cpu();
    const nn::Fp8Ways a = nn::Fp8Map(device, 0).rounded_input(kernels, x, note, first_turned);
    const at::Tensor y = second(x);
    const nn::Fp8Ways b = nn::Fp8Map(device, 1).rounded_input(kernels, y, true, /*turned=*/true);
    const nn::Fp8Tensor wanted_a = nn::Fp8Map(cpu, 0).rounded(here, Fp8Operand::input, note),
                        wanted_b = nn::Fp8Map(cpu, 1).rounded(y.cpu(), Fp8Operand::input, true);
    const auto bits = [](const at::Tensor& t) { return t.cpu().view(at::kByte); };
    EXPECT_TRUE(bits(a.straight.values).equal(bits(wanted_a.values)));
    EXPECT_TRUE(bits(b.straight.values).equal(bits(wanted_b.values)));
    EXPECT_TRUE(bits(b.turned.values).equal(bits(wanted_b.values.t().contiguous())));
    EXPECT_TRUE(b.straight.scale.cpu().equal(wanted_b.scale));
    shared = a.straight.values.data_ptr() == b.straight.values.data_ptr();
    EXPECT_TRUE(device->noted().cpu().equal(cpu->noted())) << step;
    cpu->end_step();
    device->end_step();
    EXPECT_TRUE(device->history().cpu().equal(cpu->history())) << step;
  }
  return shared;
}

TEST(DeviceFp8, MapsOfOneInputShareItsRounding) {
  on_the_double([] {
    at::manual_seed(2);
    const at::Tensor x = at::randn({32, 32});
    EXPECT_TRUE(shares(x, [](const at::Tensor& t) { return t; }));
    EXPECT_TRUE(shares(x, [](const at::Tensor& t) { return t.view({8, 4, 32}).view({32, 32}); }));
    EXPECT_FALSE(shares(x, [](const at::Tensor& t) { return t.clone(); }));
    EXPECT_FALSE(shares(x, [](const at::Tensor& t) { return t.t(); }));
    EXPECT_FALSE(shares(x, [](const at::Tensor& t) { return t.narrow(0, 0, 16); }));
    EXPECT_FALSE(shares(x, [](const at::Tensor& t) { return t.mul_(2); }));
    EXPECT_FALSE(shares(x, [](const at::Tensor& t) { return t; }, /*note=*/false));
    EXPECT_FALSE(shares(x, [](const at::Tensor& t) { return t; }, true, /*first_turned=*/false));
  });
}

/// Sharing between maps is decided in each step.
TEST(DeviceFp8, AMapThatSharedMayReadAnotherInputLater) {
  on_the_double([] {
    const auto state = state_on(cuda, options(Fp8Recipe::delayed));
    const at::Tensor large = at::full({16, 16}, 8.0, cuda), small = at::full({16, 16}, 0.5, cuda);
    const auto& kernels = *nn::Fp8Map(state, 0).kernels(large);
    for (const at::Tensor& second : {large, small}) {
      nn::Fp8Map(state, 0).rounded_input(kernels, large, /*note=*/true, /*turned=*/false);
      nn::Fp8Map(state, 1).rounded_input(kernels, second, /*note=*/true, /*turned=*/false);
      state->end_step();
      EXPECT_EQ(state->history()[0][0][0].item<double>(), 8);
      EXPECT_EQ(state->history()[0][1][0].item<double>(), second.max().item<double>());
    }
  });
}

TEST(DeviceFp8, PartsAndLateGradientsAreTheSame) {
  on_the_double([] {
    for (const nn::WeightLayout layout : {nn::WeightLayout::out_in, nn::WeightLayout::in_out}) {
      const auto map = std::make_shared<nn::Fp8Map>(state_on(cuda, options(Fp8Recipe::tensorwise)), 0);
      at::manual_seed(5);
      const at::Tensor x = at::randn({4, 16, 32}).to(cuda), dy = at::randn({4, 16, 32}).to(cuda),
                       w = at::randn({32, 32}).to(cuda).requires_grad_(true),
                       b = at::randn({32}).to(cuda).requires_grad_(true);
      const nn::Fp8Scope scope(map, true);
      const at::Tensor y = nn::linear(x, w, b, layout);
      y.backward(dy);
      const at::Tensor wanted = w.grad(), wanted_bias = b.grad();
      std::int64_t rows = 0;
      const at::Tensor parts =
          nn::linear_in_parts(x, w, layout, {2, [&](const at::Tensor& part) { rows += part.size(0); }});
      EXPECT_EQ(rows, 4);
      EXPECT_LT((parts + b - y).abs().max().item<double>(), 1e-5);
      w.mutable_grad().reset();
      b.mutable_grad().reset();
      const auto late = c10::make_intrusive<nn::WeightGradients>();
      at::Tensor again;
      {
        const nn::WeightGradients::Scope remembered(late, /*defer=*/false);
        again = nn::linear(x, w, b, layout);
      }
      {
        const nn::WeightGradients::Scope deferring(late, /*defer=*/true);
        again.backward(dy);
      }
      EXPECT_FALSE(w.grad().defined());
      late->compute();
      EXPECT_TRUE(w.grad().equal(wanted));
      EXPECT_TRUE(b.grad().equal(wanted_bias));
    }
  });
}

}  // namespace
}  // namespace tessera::testing
