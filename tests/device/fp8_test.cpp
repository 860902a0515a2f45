// Eight bits on the double of the device: operands rounded by the kernels are the CPU's bit for bit, a linear map gives
// what the CPU's gives, runs have the CPU's losses, and the host waits for nothing.
#include <ATen/ATen.h>

#include <tessera/nn/autocast.h>
#include <tessera/nn/linear_maps/fp8_linear.h>
#include <tessera/nn/weight_gradients.h>
#include <tests/device/device_training.h>
#include <tests/device/on_the_double.h>

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

/// The bits of what a map rounds x to, and its scale.
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
        for (const double size : {1.0, 1e-3, 40.0, 0.0}) {  // of four steps
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
                                   {45, 36, 20, nn::WeightLayout::out_in},  // at::_scaled_mm takes no such sizes
                                   {45, 36, 20, nn::WeightLayout::in_out}};

/// y, then the gradients of input, weight and bias, twice, with a step's end between; on the CPU.
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
    all.push_back(state->noted().cpu().clone());  // end_step() forgets it
    state->end_step();
  }
  return all;
}

void expect_close(const Tensors& device, const Tensors& cpu, double bound) {
  ASSERT_EQ(device.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i)
    EXPECT_LE((device[i] - cpu[i]).abs().max().item<double>(), bound * cpu[i].abs().max().item<double>()) << i;
}

// The operands have the same bits, so only the order of sums differs; in bf16 the result's rounding and the bias's.
TEST(DeviceFp8, LinearMapsGiveWhatTheCpusGive) {
  on_the_double([] {
    for (const Layer& layer : layers) {
      for (const Fp8Recipe recipe : {Fp8Recipe::delayed, Fp8Recipe::tensorwise}) {
        for (const Fp8Format format : {Fp8Format::hybrid, Fp8Format::e4m3}) {
          const auto o = options(recipe, format);
          for (const bool frozen : {false, true})
            expect_close(results(layer, o, cuda, false, frozen), results(layer, o, c10::kCPU, false, frozen), 1e-6);
          expect_close(results(layer, o, cuda, true, false), results(layer, o, c10::kCPU, true, false), 6e-3);
        }
      }
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

class DeviceFp8Training : public DeviceTraining {
 protected:
  /// Adam's first steps are as long for small gradients as for large ones, so at 1e-2 roundings of any kind change losses
  /// by more than eight bits do (by 2e-3 between CPU and device, and 5e-3 between bf16 and eight bits).
  DeviceFp8Training() { learning_rate_ = "1e-3"; }

  /// Bounds of losses: an eighth of what eight bits change of bf16's at 1e-3 (4e-4, here llama's second step) for fp32;
  /// half of it where the device's results between the products are bf16, and the CPU's are not.
  static constexpr double wide = 5e-5, narrow = 2e-4;

  static Strings fp8(const std::string& recipe) {
    return {"--fp8_format", "hybrid", "--fp8_recipe", recipe, "--overwrite_output_dir"};
  }
};

// Without --bf16 the maps' results are fp32 on both sides and their operands have the same bits, until the order of a
// sum tips a number over the middle between two of eight bits: then losses differ by what that number weighs.
TEST_F(DeviceFp8Training, BesideFloat32) {
  for (const char* recipe : {"delayed", "tensorwise"}) {
    expect_same(1, gpt2() + batch(2, 2, 4) + fp8(recipe), wide);
    expect_same(1, llama() + batch(2, 1, 4) + fp8(recipe), wide);
  }
}

TEST_F(DeviceFp8Training, BesideBf16) {
  for (const char* recipe : {"delayed", "tensorwise"}) {
    expect_same(1, llama() + batch(2, 2, 4) + fp8(recipe) + Strings{"--bf16"}, narrow);
    expect_same(1, gpt2() + batch(2, 2, 4) + fp8(recipe) + Strings{"--bf16"}, narrow);
  }
  const std::string operations = report("cuda");
  EXPECT_TRUE(contains(operations, "aten::_scaled_mm.out Float8_e4m3fn fast bytes ")) << "forward";
  EXPECT_TRUE(contains(operations, "aten::_scaled_mm.out Float8_e5m2 bytes ")) << "gradients";
  EXPECT_TRUE(contains(operations, "aten::_scaled_mm.out Float8_e4m3fn bytes ")) << "the gradient of [in, out]";
  EXPECT_TRUE(contains(operations, " fp8_cast bytes "));
  EXPECT_FALSE(contains(operations, "aminmax"));
  EXPECT_FALSE(contains(operations, "Float8_e4m3fn to Float8_e4m3fn")) << "a transpose was copied";
  EXPECT_FALSE(contains(operations, "Float8_e4m3fn to Float bytes")) << "a product was not in eight bits";
}

TEST_F(DeviceFp8Training, EightBitsAct) {
  const Strings bf16 = llama() + batch(2, 2, 2) + Strings{"--bf16", "--save_strategy", "no"};
  const Run without = train("bf16", true, 1, bf16), with = train("eight", true, 1, bf16 + fp8("delayed"));
  EXPECT_GT(std::abs(with.losses.at(2) - without.losses.at(2)), narrow * without.losses.at(2));
}

TEST_F(DeviceFp8Training, Sharded) {
  const Strings sharded = {"--bf16", "--fsdp", "full_shard"}, checkpointing = {"--gradient_checkpointing"};
  expect_same(2, llama() + batch(2, 1, 4) + fp8("delayed") + sharded, narrow);
  expect_same(2, gpt2() + batch(2, 1, 4) + fp8("tensorwise") + sharded + checkpointing, narrow);
}

TEST_F(DeviceFp8Training, CutOverTensorParallelRanks) {
  expect_same(2, llama() + batch(2, 1, 4) + fp8("delayed") + Strings{"--bf16", "--tp_size", "2"}, narrow);
}

TEST_F(DeviceFp8Training, TheHostWaitsForNothing) {
  EXPECT_EQ(waits_per_step("delayed", llama() + fp8("delayed") + Strings{"--bf16"}), 0U);
  EXPECT_EQ(waits_per_step("tensorwise", gpt2() + fp8("tensorwise") + Strings{"--bf16"}), 0U);
}

}  // namespace
}  // namespace tessera::testing
