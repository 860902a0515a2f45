// Dropout by position on the simulated device: the same bits as on the CPU, without a host wait.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/nn/attention/dropout_attention.h>
#include <tessera/nn/dropout.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>

namespace tessera::testing {
namespace {

using nn::RandomPlace;

std::vector<RandomPlace> places() {
  const auto zigzag = std::make_shared<std::vector<std::int64_t>>(std::vector<std::int64_t>{9, 0, 1, 7, 8, 2, 3});
  return {{.key = 3}, {.key = 4, .row = 5, .token = 2, .column = 7}, {.key = 5, .token = 1, .tokens = zigzag}};
}

TEST(DeviceDropout, HasTheBitsOfTheCpu) {
  run_ranks(
      1,
      [](comm::World& world) {
        for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
          for (const RandomPlace& place : places()) {
            const at::Tensor x = at::randn({3, 6, 37}).to(type), dy = at::randn({3, 6, 37}).to(type);
            const auto both = [&](c10::Device device) {
              const at::Tensor in = x.detach().clone().to(device).requires_grad_(true), dout = dy.to(device);
              const std::size_t waits = cuda_double::waits();
              const at::Tensor y = nn::dropout(in, 0.3, place);
              y.backward(dout);
              EXPECT_EQ(cuda_double::waits(), waits);
              EXPECT_EQ(y.scalar_type(), type);
              return std::pair(y.detach().cpu(), in.grad().cpu());
            };
            const auto cpu = both(c10::kCPU), cuda = both(world.device());
            EXPECT_TRUE(cuda.first.equal(cpu.first)) << type << " key " << place.key;
            EXPECT_TRUE(cuda.second.equal(cpu.second)) << type << " key " << place.key;
          }
        }
      },
      on_device());
}

TEST(DeviceDropout, OneTokenPerRow) {
  run_ranks(
      1,
      [](comm::World& world) {
        const at::Tensor x = at::randn({5, 40});
        EXPECT_TRUE(nn::dropout(x.to(world.device()), 0.5, {.key = 1}).cpu().equal(nn::dropout(x, 0.5, {.key = 1})));
      },
      on_device());
}

TEST(DeviceDropout, UniformNumbers) {
  run_ranks(
      1,
      [](comm::World& world) {
        for (const RandomPlace& place : places()) {
          const std::size_t waits = cuda_double::waits();
          const at::Tensor y = nn::uniform(2, 6, 33, place, world.device());
          EXPECT_EQ(cuda_double::waits(), waits);
          EXPECT_TRUE(y.is_cuda());
          EXPECT_TRUE(y.cpu().equal(nn::uniform(2, 6, 33, place, c10::kCPU)));
        }
      },
      on_device());
}

TEST(DeviceDropout, AttentionWeights) {
  run_ranks(
      1,
      [](comm::World& world) {
        for (const RandomPlace& place : places()) {
          const at::Tensor q = at::randn({2, 3, 6, 8}), k = at::randn({2, 3, 6, 8}), v = at::randn({2, 3, 6, 8});
          const auto both = [&](c10::Device device) {
            const at::Tensor a = q.to(device), b = k.to(device), c = v.to(device), dy = at::ones_like(a);
            const nn::AttentionRectangle rectangle{.q = a, .k = b, .v = c, .scale = 0.3};
            const nn::WeightDropout dropout{0.4, place};
            const nn::RectanglePlace keys{.row = 2, .query = 0, .keys = {4, 5, 9, 0, 1, 2}};
            const std::size_t waits = cuda_double::waits();
            const auto [out, sums] = nn::rectangle_attention(rectangle, dropout, keys);
            const nn::RectangleGradients d = nn::rectangle_attention_backward(dy, rectangle, out, sums, dropout, keys);
            EXPECT_EQ(cuda_double::waits(), waits);
            return at::cat({out, d.dq, d.dk, d.dv}).cpu();
          };
          EXPECT_TRUE(at::allclose(both(world.device()), both(c10::kCPU), 1e-6, 1e-6)) << "key " << place.key;
        }
      },
      on_device());
}

}  // namespace
}  // namespace tessera::testing
