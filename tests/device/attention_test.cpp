// Attention within documents and windows on the simulated device, compared with the CPU and without a host wait.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/nn/attention.h>
#include <tessera/nn/autocast.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>
#include <tests/double/memory.h>

#include <algorithm>

namespace tessera::testing {
namespace {

struct Case {
  const char* name;
  std::int64_t key_heads, window;
  nn::DocumentStarts documents;
};
const std::vector<Case> cases = {
    {"documents", 4, 0, {0, 3, 4, 11, 16, 20}},
    {"grouped heads", 2, 0, {0, 7, 11, 12}},
    {"a window", 4, 4, {}},
    {"a window in documents", 1, 3, {0, 2, 11, 13}},
    {"a window of one token", 4, 1, {0, 5, 11}},
    {"a window as long as any document", 2, 9, {0, 9, 11, 20}},
    {"one document per row, a long window", 4, 11, {}},
    {"grouped heads of whole rows", 2, 0, {}},
};

/// {output, gradients of q, k and v} on the CPU.
std::vector<at::Tensor> results(const std::vector<at::Tensor>& qkv, c10::Device device, const Case& c, bool autocast) {
  std::vector<at::Tensor> in;
  for (const at::Tensor& x : qkv) in.push_back(x.detach().to(device).requires_grad_(true));
  const at::Tensor dy =
      at::linspace(-1, 1, 2 * 11 * 64).view({2, 11, 64}).to(autocast ? at::kBFloat16 : qkv[0].scalar_type()).to(device);
  const std::size_t waits = cuda_double::waits();
  at::Tensor y;
  {
    const nn::Autocast narrow(autocast, device.type());
    y = nn::attention(in[0], in[1], in[2], c.documents, {.scale = 0.3, .window = c.window});
  }
  y.backward(dy.to(y.scalar_type()));
  EXPECT_EQ(cuda_double::waits(), waits) << c.name;
  return {y.detach().cpu(), in[0].grad().cpu(), in[1].grad().cpu(), in[2].grad().cpu()};
}

std::vector<at::Tensor> random_inputs(const Case& c) {
  return {at::randn({2, 11, 4, 16}), at::randn({2, 11, c.key_heads, 16}), at::randn({2, 11, c.key_heads, 16})};
}

void expect_close(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want, double bound,
                  const char* name) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), want[i].sizes());
    EXPECT_LE((got[i].to(at::kFloat) - want[i].to(at::kFloat)).abs().max().item<double>(),
              bound * std::max(0.1, want[i].abs().max().item<double>()))  // with a single key the gradient is zero
        << name << ": " << i;
  }
}

TEST(DeviceAttention, Float32) {
  run_ranks(
      1,
      [](comm::World& world) {
        for (const Case& c : cases) {
          const std::vector<at::Tensor> in = random_inputs(c);
          expect_close(results(in, world.device(), c, false), results(in, c10::kCPU, c, false), 1e-6, c.name);
        }
      },
      on_device());
}

TEST(DeviceAttention, HalfPrecision) {
  run_ranks(
      1,
      [](comm::World& world) {
        for (const Case& c : cases) {
          for (const auto type : {at::kBFloat16, at::kHalf}) {
            std::vector<at::Tensor> in = random_inputs(c), wide;
            for (at::Tensor& x : in) {
              x = x.to(type);
              wide.push_back(x.to(at::kFloat));
            }
            const std::vector<at::Tensor> got = results(in, world.device(), c, false);
            EXPECT_EQ(got[0].scalar_type(), type);
            expect_close(got, results(wide, c10::kCPU, c, false), type == at::kHalf ? 0x1p-8 : 0x1p-5, c.name);
          }
        }
      },
      on_device());
}

TEST(DeviceAttention, Autocast) {
  run_ranks(
      1,
      [](comm::World& world) {
        const Case& c = cases[1];
        const std::vector<at::Tensor> in = random_inputs(c);
        const std::vector<at::Tensor> got = results(in, world.device(), c, true);
        EXPECT_EQ(got[0].scalar_type(), at::kBFloat16);
        EXPECT_EQ(got[1].scalar_type(), at::kFloat);
        expect_close(got, results(in, c10::kCPU, c, false), 0x1p-5, c.name);
      },
      on_device());
}

/// Peak device bytes of a forward pass, less the bytes in use before it.
std::size_t peak(const at::Tensor& q, const at::Tensor& k, const nn::DocumentStarts& documents) {
  const int device = q.device().index();
  cuda_double::reset_peak(device);
  const std::size_t before = cuda_double::bytes_in_use(device);
  (void)nn::attention(q, k, k, documents, {.scale = 0.3});
  return cuda_double::bytes_peak(device) - before;
}

TEST(DeviceAttention, NeitherMasksNorCopiesOfKeys) {
  run_ranks(
      1,
      [](comm::World& world) {
        const at::TensorOptions options = at::TensorOptions(at::kBFloat16).device(world.device());
        const at::Tensor q = at::ones({1, 512, 8, 16}, options), k = at::ones({1, 512, 2, 16}, options);
        const std::size_t bytes = q.nbytes();  // the bytes of keys, values or the output, with all heads
        EXPECT_LT(peak(q, k, {0, 100, 101}), 2 * bytes) << "a mask of 512 x 512 has " << 512 * 512;
        EXPECT_LT(peak(q, k, {}), 2 * bytes);
      },
      on_device());
}

TEST(DeviceAttention, TensorsOfAnyStrides) {
  run_ranks(
      1,
      [](comm::World& world) {
        const auto laid = [](const at::Tensor& x, std::vector<std::int64_t> order) {  // lays out memory in this order
          std::vector<std::int64_t> back(order.size());
          for (std::size_t i = 0; i < order.size(); ++i) back[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
          return x.permute(order).contiguous().permute(back);
        };
        const at::Tensor wide = at::randn({1, 9, 4, 16}).to(at::kBFloat16).to(at::kFloat);
        const at::Tensor want = nn::attention(wide, wide, wide, {0, 4}, {.scale = 0.3});
        for (const std::vector<std::int64_t>& order : {std::vector<std::int64_t>{0, 2, 1, 3}, {0, 1, 3, 2}}) {
          const at::Tensor x = laid(wide.to(world.device(), at::kBFloat16), order);
          const at::Tensor y = nn::attention(x, x, x, {0, 4}, {.scale = 0.3});
          EXPECT_LE((y.cpu().to(at::kFloat) - want).abs().max().item<double>(),
                    0x1p-6 * want.abs().max().item<double>());
        }
      },
      on_device());
}

// Heads of 12, which the flash kernel rejects, so documents become a mask.
TEST(DeviceAttention, HeadsThatTheFlashKernelDoesNotTake) {
  run_ranks(
      1,
      [](comm::World& world) {
        const nn::DocumentStarts documents = {0, 4, 6, 9};
        const at::Tensor x = at::randn({2, 6, 2, 12}).to(at::kBFloat16), on = x.to(world.device());
        const std::size_t waits = cuda_double::waits();
        const at::Tensor y = nn::attention(on, on, on, documents, {.scale = 0.3, .window = 3});
        EXPECT_EQ(cuda_double::waits(), waits);
        const at::Tensor wide = x.to(at::kFloat);
        const at::Tensor want = nn::attention(wide, wide, wide, documents, {.scale = 0.3, .window = 3});
        EXPECT_LE((y.cpu().to(at::kFloat) - want).abs().max().item<double>(), 0x1p-6 * want.abs().max().item<double>());
      },
      on_device());
}

}  // namespace
}  // namespace tessera::testing
