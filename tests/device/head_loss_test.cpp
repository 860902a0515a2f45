// The head with its loss on the simulated device: the CPU's results, in chunks, without a host wait.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/head_loss.h>
#include <tessera/nn/linear_cross_entropy.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>

#include <cmath>

namespace tessera::testing {
namespace {

using nn::LossOptions;

struct Head {
  at::Tensor hidden, weight, bias, labels;
};

/// Inputs with some labels that are not scored.
Head random_head(std::int64_t rows, std::int64_t tokens, std::int64_t c, std::int64_t v) {
  Head head{at::randn({rows, tokens, c}), at::randn({v, c}) * 0.3, at::randn({v}), at::randint(v, {rows, tokens})};
  if (tokens > 1) head.labels.select(1, 1).fill_(nn::ignored_label);
  return head;
}

/// The loss and all required gradients, on the CPU; counts host waits.
std::vector<at::Tensor> results(const Head& head, c10::Device device, const LossOptions& options,
                                bool autocast = false) {
  const auto leaf = [&](const at::Tensor& x) { return x.defined() ? x.detach().to(device).requires_grad_(true) : x; };
  const at::Tensor hidden = leaf(head.hidden), weight = leaf(head.weight), bias = leaf(head.bias),
                   labels = head.labels.to(device), factor = at::full({}, 2.0, at::kFloat).to(device);
  const std::size_t waits = cuda_double::waits();
  at::Tensor loss;
  {
    const nn::Autocast narrow(autocast, device.type());
    loss = nn::linear_cross_entropy(hidden, weight, labels, 0.25, options, bias);
  }
  loss.backward(factor);
  EXPECT_EQ(cuda_double::waits(), waits);
  std::vector<at::Tensor> all = {loss.detach().cpu(), hidden.grad().cpu(), weight.grad().cpu()};
  if (bias.defined()) all.push_back(bias.grad().cpu());
  return all;
}

void expect_close(const std::vector<at::Tensor>& cuda, const std::vector<at::Tensor>& cpu, double bound) {
  ASSERT_EQ(cuda.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_EQ(cuda[i].scalar_type(), cpu[i].scalar_type());
    EXPECT_LE((cuda[i] - cpu[i]).abs().max().item<double>(), bound * cpu[i].abs().max().item<double>()) << i;
  }
}

template <class Body>
void on_one_rank(const Body& body) {
  run_ranks(1, [&](comm::World& world) { body(world.device()); }, on_device());
}

TEST(DeviceHeadLoss, IsTheCpus) {
  on_one_rank([](c10::Device device) {
    for (const bool biased : {false, true}) {
      for (const LossOptions& options :
           {LossOptions{}, LossOptions{.label_smoothing = 0.1}, LossOptions{.place = nn::LabelPlace::own},
            LossOptions{.label_smoothing = 0.2, .softcap = 2}}) {
        Head head = random_head(3, 7, 8, 33);
        if (!biased) head.bias.reset();
        expect_close(results(head, device, options), results(head, c10::kCPU, options), 1e-6);
      }
    }
  });
}

TEST(DeviceHeadLoss, SeveralChunks) {
  on_one_rank([](c10::Device device) {
    const Head head = random_head(3, 5, 8, 33);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor hidden = head.hidden.to(device, type), weight = head.weight.to(device, type),
                       labels = head.labels.to(device);
      const auto formed = [&](std::int64_t chunk) {
        const nn::HeadLoss all =
            nn::device_head_loss(hidden, weight, {}, labels, 0.25, {}, {.hidden = true, .weight = true}, chunk);
        EXPECT_EQ(all.dweight.scalar_type(), type);
        return std::vector<at::Tensor>{all.loss.cpu(), all.dhidden.cpu(), all.dweight.cpu()};
      };
      for (const std::int64_t chunk : {1, 4, 14}) {
        expect_close(formed(chunk), formed(0), type == at::kFloat ? 1e-6 : 0x1p-6);
      }
    }
  });
}

TEST(DeviceHeadLoss, Autocast) {
  on_one_rank([](c10::Device device) {
    for (const bool biased : {false, true}) {
      for (const LossOptions& options : {LossOptions{}, LossOptions{.label_smoothing = 0.1, .softcap = 3}}) {
        Head head = random_head(3, 7, 8, 33);
        if (!biased) head.bias.reset();
        expect_close(results(head, device, options, true), results(head, c10::kCPU, options), 0x1p-6);
      }
    }
  });
}

TEST(DeviceHeadLoss, PureBfloat16) {
  on_one_rank([](c10::Device device) {
    Head head = random_head(3, 7, 8, 33);
    head.hidden = head.hidden.to(at::kBFloat16), head.weight = head.weight.to(at::kBFloat16), head.bias.reset();
    Head wide = head;
    wide.hidden = wide.hidden.to(at::kFloat), wide.weight = wide.weight.to(at::kFloat);
    std::vector<at::Tensor> want = results(wide, c10::kCPU, {});
    for (std::size_t i = 1; i < want.size(); ++i) want[i] = want[i].to(at::kBFloat16);
    expect_close(results(head, device, {}), want, 0x1p-6);
  });
}

TEST(DeviceHeadLoss, WithoutGradients) {
  on_one_rank([](c10::Device device) {
    const Head head = random_head(2, 5, 8, 33);
    const at::NoGradGuard none;
    const auto loss = [&](c10::Device where) {
      return nn::linear_cross_entropy(head.hidden.to(where), head.weight.to(where), head.labels.to(where), 1)
          .item<double>();
    };
    EXPECT_NEAR(loss(device), loss(c10::kCPU), 1e-4);
  });
}

TEST(DeviceHeadLoss, AWrongLabelMakesTheLossNotANumber) {
  on_one_rank([](c10::Device device) {
    Head head = random_head(2, 5, 8, 33);
    head.labels[1][3] = 33;
    const std::vector<at::Tensor> got = results(head, device, {});
    EXPECT_TRUE(std::isnan(got[0].item<double>()));
    EXPECT_TRUE(got[1][1][2].isnan().all().item<bool>());
    EXPECT_FALSE(got[1][0].isnan().any().item<bool>());
  });
}

TEST(DeviceHeadLoss, NoTokenIsScored) {
  on_one_rank([](c10::Device device) {
    Head head = random_head(2, 1, 8, 33);
    head.labels.fill_(3);  // the last position of a row predicts nothing
    const std::vector<at::Tensor> got = results(head, device, {});
    EXPECT_EQ(got[0].item<double>(), 0);
    for (std::size_t i = 1; i < got.size(); ++i) EXPECT_EQ(got[i].abs().max().item<double>(), 0);
  });
}

}  // namespace
}  // namespace tessera::testing
