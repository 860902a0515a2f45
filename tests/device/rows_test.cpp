// The row operations of nn/ on the simulated device, compared with the CPU: results, gradients, types.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/nn.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>

#include <functional>

namespace tessera::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operation = std::function<Tensors(const Tensors&)>;

const c10::Device cuda(c10::kCUDA, 0);

Tensors random(const std::vector<std::vector<std::int64_t>>& shapes) {
  at::manual_seed(5);
  Tensors all;
  for (const auto& shape : shapes) all.push_back(at::randn(shape));
  return all;
}

/// Results of `operation` on the inputs, then the gradients of the sum of weighted results with respect to all inputs
/// except `frozen`.
Tensors run(const Operation& operation, const Tensors& inputs, c10::Device device,
            const std::vector<at::ScalarType>& types = {}, std::size_t frozen = 99) {
  Tensors own;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    own.push_back(
        inputs[i].clone().to(device).to(i < types.size() ? types[i] : at::kFloat).requires_grad_(i != frozen));
  Tensors out = operation(own);
  at::Tensor total;
  double factor = 1;
  for (const at::Tensor& y : out) {
    const at::Tensor weights = at::arange(y.numel()).remainder(7).view(y.sizes()).to(device).to(at::kFloat);
    const at::Tensor part = (y.to(at::kFloat) * weights).sum() * factor;
    total = total.defined() ? total + part : part;
    factor += 1;
  }
  total.backward();
  for (at::Tensor& y : out) y = y.detach();
  for (const at::Tensor& x : own) out.push_back(x.grad());
  return out;
}

void expect_close(const Tensors& device, const Tensors& cpu, double bound) {
  ASSERT_EQ(device.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    ASSERT_EQ(device[i].defined(), cpu[i].defined()) << i;
    if (!cpu[i].defined()) continue;
    const at::Tensor x = device[i].cpu().to(at::kDouble), y = cpu[i].cpu().to(at::kDouble);
    EXPECT_LT(((x - y).abs().max() / (1 + y.abs().max())).item<double>(), bound) << "of result or gradient " << i;
  }
}

struct Case {
  const char* name;
  Operation operation;
  Tensors inputs;
};
std::vector<Case> cases() {
  const auto pair = [](const nn::ResidualNorm& n) { return Tensors{n.sum, n.normed}; };
  std::vector<Case> all = {
      {"rms_norm", [](const Tensors& x) { return Tensors{nn::rms_norm(x[0], x[1], 1e-5)}; },
       random({{3, 5, 24}, {24}})},
      {"rms_norm of heads", [](const Tensors& x) { return Tensors{nn::rms_norm(x[0], x[1], 1e-5)}; },
       random({{2, 5, 3, 8}, {8}})},
      {"add_rms_norm", [=](const Tensors& x) { return pair(nn::add_rms_norm(x[0], x[1], x[2], 1e-5)); },
       random({{3, 5, 24}, {3, 5, 24}, {24}})},
      {"layer_norm", [](const Tensors& x) { return Tensors{nn::layer_norm(x[0], x[1], x[2], 1e-5)}; },
       random({{3, 5, 23}, {23}, {23}})},
      {"add_layer_norm", [=](const Tensors& x) { return pair(nn::add_layer_norm(x[0], x[1], {}, x[2], x[3], 1e-5)); },
       random({{3, 5, 24}, {3, 5, 24}, {24}, {24}})},
      {"add_layer_norm and bias",
       [=](const Tensors& x) { return pair(nn::add_layer_norm(x[0], x[1], x[2], x[3], x[4], 1e-5)); },
       random({{3, 50, 24}, {3, 50, 24}, {24}, {24}, {24}})},
      {"add_layer_norm of nothing",
       [=](const Tensors& x) { return pair(nn::add_layer_norm(x[0], {}, {}, x[1], x[2], 1e-5)); },
       random({{3, 5, 24}, {24}, {24}})},
      {"add_bias", [](const Tensors& x) { return Tensors{nn::add_bias(x[0], x[1], x[2])}; },
       random({{3, 50, 24}, {3, 50, 24}, {24}})},
      {"add_bias of nothing", [](const Tensors& x) { return Tensors{nn::add_bias(x[0], x[1], {})}; },
       random({{3, 5, 23}, {3, 5, 23}})},
      {"gelu", [](const Tensors& x) { return Tensors{nn::bias_gelu_tanh(x[0], x[1])}; }, random({{3, 30, 20}, {20}})},
      {"gelu without bias", [](const Tensors& x) { return Tensors{nn::bias_gelu_tanh(x[0], {})}; }, random({{3, 21}})},
      {"swiglu", [](const Tensors& x) { return Tensors{nn::swiglu(x[0], x[1])}; }, random({{3, 5, 21}, {3, 5, 21}})},
      {"swiglu of halves",
       [](const Tensors& x) { return Tensors{nn::swiglu(x[0].narrow(1, 0, 10), x[0].narrow(1, 10, 10))}; },
       random({{6, 20}})},
  };
  for (const nn::WeightLayout layout : {nn::WeightLayout::in_out, nn::WeightLayout::out_in}) {
    const bool out_first = layout == nn::WeightLayout::out_in;
    const auto apart = [layout](const Tensors& x) {
      const at::Tensor bias = x.size() > 2 ? x[2] : at::Tensor();
      const auto parts = nn::linear_apart(x[0], x[1], bias, layout, 3);
      EXPECT_EQ(parts.has_value(), x[0].is_cuda());
      return parts ? *parts : nn::linear(x[0], x[1], bias, layout).chunk(3, -1);
    };
    const Tensors inputs =
        random({{2, 25, 8}, out_first ? std::vector<std::int64_t>{24, 8} : std::vector<std::int64_t>{8, 24}, {24}});
    all.push_back({"linear apart", apart, inputs});
    all.push_back({"linear apart without bias", apart, {inputs[0], inputs[1]}});
  }
  all.push_back({"tokens and places",
                 [](const Tensors& x) {
                   const at::Tensor ids = at::arange(20).mul_(7).remainder_(9).view({4, 5}).to(x[0].device());
                   return Tensors{nn::embed(ids, x[0], x[1], 2)};
                 },
                 random({{9, 12}, {8, 12}})});
  const auto table = [](const at::Tensor& x) {
    return nn::rotary_table(at::arange(5, x.options().dtype(at::kLong)),
                            at::arange(1, 5, x.options().dtype(at::kFloat)) * 0.3, 1);
  };
  all.push_back(
      {"rotary", [=](const Tensors& x) { return Tensors{nn::rotary(x[0], table(x[0]))}; }, random({{2, 5, 3, 8}})});
  all.push_back({"rotary of a packed part",
                 [=](const Tensors& x) { return Tensors{nn::rotary(x[0].select(2, 1), table(x[0]))}; },
                 random({{2, 5, 3, 2, 8}})});
  return all;
}

TEST(DeviceRows, AsOnTheCpu) {
  on_the_double([] {
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.name);
      expect_close(run(c.operation, c.inputs, cuda), run(c.operation, c.inputs, c10::Device(c10::kCPU)), 1e-6);
    }
  });
}

/// The tensors' device is not the current one, on which the kernels would run by default.
TEST(DeviceRows, OnAnotherDeviceThanTheCurrentOne) {
  on_the_double([] {
    if (at::globalContext().getAcceleratorHooksInterface(c10::kCUDA).deviceCount() < 2) return;  // a single card
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.name);
      expect_close(run(c.operation, c.inputs, c10::Device(c10::kCUDA, 1)), run(c.operation, c.inputs, cuda), 1e-30);
    }
  });
}

/// bf16 results may differ by bf16 rounding.
TEST(DeviceRows, InBf16AsTheCpuInFp32) {
  on_the_double([] {
    const std::vector<at::ScalarType> all_narrow(5, at::kBFloat16);
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.name);
      const Tensors narrow = run(c.operation, c.inputs, cuda, all_narrow);
      for (const at::Tensor& t : narrow) EXPECT_EQ(t.scalar_type(), at::kBFloat16);
      Tensors rounded;
      for (const at::Tensor& x : c.inputs) rounded.push_back(x.to(at::kBFloat16).to(at::kFloat));
      expect_close(narrow, run(c.operation, rounded, c10::Device(c10::kCPU)), 1e-2);
    }
  });
}

std::vector<at::ScalarType> types(const Tensors& tensors) {
  std::vector<at::ScalarType> all;
  for (const at::Tensor& t : tensors) all.push_back(t.scalar_type());
  return all;
}

TEST(DeviceRows, TypesUnderAutocast) {
  on_the_double([] {
    constexpr auto f = at::kFloat, b = at::kBFloat16;
    const auto in = [](const Operation& operation) {
      return [operation](const Tensors& x) {
        const nn::Autocast autocast(true, c10::kCUDA);
        return operation(x);
      };
    };
    const auto types_of = [&](const char* name, const std::vector<at::ScalarType>& given) {
      for (const Case& c : cases())
        if (c.name == std::string(name)) return types(run(in(c.operation), c.inputs, cuda, given));
      return std::vector<at::ScalarType>{};
    };
    using Types = std::vector<at::ScalarType>;
    EXPECT_EQ(types_of("add_layer_norm and bias", {f, b, f, f, f}), (Types{f, f, f, b, f, f, f}));
    EXPECT_EQ(types_of("add_rms_norm", {f, b, f}), (Types{f, f, f, b, f}));
    EXPECT_EQ(types_of("layer_norm", {b, f, f}), (Types{f, b, f, f}));
    EXPECT_EQ(types_of("rms_norm of heads", {b, f}), (Types{f, b, f}));
    EXPECT_EQ(types_of("add_bias", {f, b, f}), (Types{f, f, b, f}));
    EXPECT_EQ(types_of("add_bias of nothing", {f, b}), (Types{f, f, b}));
    EXPECT_EQ(types_of("linear apart", {f, f, f}), (Types{b, b, b, f, f, f}));
    EXPECT_EQ(types_of("linear apart", {b, f, f}), (Types{b, b, b, b, f, f}));
    EXPECT_EQ(types_of("gelu", {b, f}), (Types{b, b, f})) << "an fp32 bias must not widen the input";
    EXPECT_EQ(types_of("swiglu", {b, b}), (Types{b, b, b}));
    EXPECT_EQ(types_of("rotary", {b}), (Types{b, b}));
  });
}

/// Bits and gradients of an fp32 norm when the operation that reads it rounds.
TEST(DeviceRows, ANormForLinearMapsIsStoredInAutocastsType) {
  on_the_double([] {
    const auto of = [](nn::NormReaders readers, std::optional<at::ScalarType> autocast, bool rms) {
      return [=](const Tensors& x) {
        const nn::Autocast scope(autocast, c10::kCUDA);
        const nn::ResidualNorm n = rms ? nn::add_rms_norm(x[0], x[1], x[2], 1e-5, readers)
                                       : nn::add_layer_norm(x[0], x[1], x[2], x[2], x[2], 1e-5, readers);
        const bool rounds = readers == nn::NormReaders::linear_maps && autocast == at::kBFloat16;
        EXPECT_EQ(n.normed.scalar_type(), rounds ? at::kBFloat16 : at::kFloat)
            << c10::toString(autocast.value_or(at::kFloat));
        EXPECT_EQ(n.sum.scalar_type(), at::kFloat);
        return Tensors{n.sum, n.normed.to(autocast.value_or(at::kFloat))};
      };
    };
    const Tensors inputs = random({{3, 50, 24}, {3, 50, 24}, {24}});
    for (const bool rms : {true, false}) {
      for (const auto autocast :
           {std::optional<at::ScalarType>(), std::optional(at::kHalf), std::optional(at::kBFloat16)}) {
        const Tensors stored = run(of(nn::NormReaders::linear_maps, autocast, rms), inputs, cuda);
        expect_close(stored, run(of(nn::NormReaders::any, autocast, rms), inputs, cuda), 1e-30);
      }
    }
  });
}

TEST(DeviceRows, WhateverIsFrozenHasNoGradient) {
  on_the_double([] {
    for (const Case& c : cases()) {
      for (std::size_t frozen = 0; c.inputs.size() > 1 && frozen < c.inputs.size(); ++frozen) {
        SCOPED_TRACE(std::string(c.name) + ", frozen " + std::to_string(frozen));
        const Tensors device = run(c.operation, c.inputs, cuda, {}, frozen);
        EXPECT_FALSE(device[device.size() - c.inputs.size() + frozen].defined());
        expect_close(device, run(c.operation, c.inputs, c10::Device(c10::kCPU), {}, frozen), 1e-6);
      }
    }
  });
}

TEST(DeviceRows, OtherTypesAreLeftToATen) {
  on_the_double([] {
    const Tensors given = random({{3, 5, 24}, {24}, {24}});
    const auto norm = [](const Tensors& x) { return Tensors{nn::layer_norm(x[0], x[1], x[2], 1e-5)}; };
    const std::vector<at::ScalarType> wide(3, at::kDouble);
    EXPECT_EQ(run(norm, given, cuda, wide)[0].scalar_type(), at::kDouble);
  });
}

}  // namespace
}  // namespace tessera::testing
