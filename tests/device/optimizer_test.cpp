// Optimizer updates on the device: the same bits as on the CPU.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/kernels/cpu/dispatch.h>
#include <tessera/optim/norm.h>
#include <tessera/optim/optimizer.h>
#include <tessera/optim/stochastic_rounding.h>
#include <tests/device/on_the_double.h>

#include <limits>

namespace tessera::testing {
namespace {

using namespace optim;

/// Four parameters, the last a piece of a larger one, with the same values on every device.
std::vector<Slot> slots_on(c10::Device device) {
  at::manual_seed(3);
  std::vector<Slot> slots;
  for (const std::int64_t n : {1, 100, 3001}) slots.push_back({concat("p", n), at::randn({n}).to(device)});
  slots.push_back({.name = "piece", .parameter = at::randn({500}).to(device), .shape = {40, 50}, .begin = 1024});
  return slots;
}

void expect_same_bits(const std::string& what, const at::Tensor& device, const at::Tensor& cpu) {
  EXPECT_EQ(device.scalar_type(), cpu.scalar_type()) << what;
  EXPECT_TRUE(at::equal(device.cpu(), cpu)) << what;
}

/// Runs three steps on both; `clipped`: clips by the norm, which never leaves the device.
void expect_the_bits_of_the_cpu(bool decay_in_gradient, const CommonOptions& common, bool clipped) {
  const AdamWOptions options;
  const auto make = decay_in_gradient ? &make_adam : &make_adamw;
  const c10::Device cuda(c10::kCUDA, 0);
  std::vector<Slot> here = slots_on(c10::kCPU), there = slots_on(cuda);
  for (std::vector<Slot>* slots : {&here, &there})
    for (Slot& slot : *slots) slot.weight_decay = 0.1;
  const auto on_cpu = make(here, options, common), on_device = make(there, options, common);
  for (int step = 0; step < 3; ++step) {
    std::vector<GradientPiece> pieces, device_pieces;
    for (std::size_t i = 0; i < here.size(); ++i) {
      const at::Tensor g = at::randn(here[i].parameter.sizes());
      here[i].parameter.mutable_grad() = g;
      there[i].parameter.mutable_grad() = g.to(cuda);
      pieces.push_back({g, here[i].begin});
      device_pieces.push_back({there[i].parameter.grad(), there[i].begin});
    }
    if (clipped) {
      const double norm = gradient_norm(pieces, [](std::vector<std::int64_t>&) {});
      on_cpu->step(1e-2, clip_coefficient(norm, 1));
      ASSERT_TRUE(on_device->takes_step_scalars());
      on_device->step_by(step_scalars(squares_on_device(device_pieces, cuda), 1), 1e-2);
    } else {
      on_cpu->step(1e-2, 0.7);
      on_device->step(1e-2, 0.7);
    }
  }
  for (std::size_t i = 0; i < here.size(); ++i) expect_same_bits(here[i].name, there[i].parameter, here[i].parameter);
  const auto states = on_cpu->state(), device_states = on_device->state();
  ASSERT_EQ(device_states.size(), states.size());
  for (std::size_t i = 0; i < states.size(); ++i)
    expect_same_bits(states[i].first, device_states[i].second, states[i].second);
}

TEST(DeviceOptimizer, HasTheBitsOfTheCpu) {
  if (kernels::supported_isas().size() < 2) GTEST_SKIP() << "this CPU rounds products and sums separately";
  on_the_double([] {
    for (const bool decay_in_gradient : {false, true})
      for (const bool clipped : {false, true}) {
        expect_the_bits_of_the_cpu(decay_in_gradient, {}, clipped);
        for (const bool stochastic : {false, true})
          expect_the_bits_of_the_cpu(decay_in_gradient,
                                     {.bf16_state = true, .stochastic_rounding = stochastic, .seed = 5}, clipped);
      }
  });
}

TEST(DeviceOptimizer, StatesAreRoundedAsOnTheCpu) {
  on_the_double([] {
    const at::Tensor x = at::randn({1000});
    x[7] = std::numeric_limits<float>::quiet_NaN();
    x[8] = -std::numeric_limits<float>::infinity();
    for (const int which : {0, 1})
      for (const std::int64_t first : {std::int64_t{0}, (std::int64_t{1} << 32) - 128})
        for (const bool stochastic : {false, true}) {
          const kernels::Bf16Rounding rounding{.stochastic = stochastic, .key = 17, .first = first};
          const at::Tensor here = at::empty({1000}, at::kBFloat16), there = at::empty_like(here, c10::kCUDA);
          round_to_bf16(x, here, rounding, which);
          round_to_bf16(x.to(c10::kCUDA), there, rounding, which);
          const at::Tensor got = there.cpu();
          EXPECT_EQ(got.view(at::kShort)[7].item<std::int16_t>(), 0x7fc0);
          got[7] = here[7] = 0;  // ATen's NaN has different bits
          EXPECT_TRUE(at::equal(got, here)) << which << " " << first << " " << stochastic;
        }
  });
}

}  // namespace
}  // namespace tessera::testing
