// A mixture of experts on the simulated device, compared with the CPU: results, gradients, and when the host waits.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/moe/permute.h>
#include <tessera/nn/nn.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>

#include <functional>

namespace tessera::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

const c10::Device cuda(c10::kCUDA, 0), cpu(c10::kCPU);
constexpr std::int64_t tokens = 70, hidden = 24, experts = 8;

std::size_t waits_in(const std::function<void()>& body) {
  const std::size_t before = cuda_double::waits();
  body();
  return cuda_double::waits() - before;
}

/// Three of the experts for each token; no token chooses the last one.
at::Tensor drawn_ids() {
  at::manual_seed(5);
  return std::get<1>(at::rand({tokens, experts - 1}).topk(3, -1));
}

TEST(DeviceExperts, SlotsInTheOrderOfTheCpu) {
  on_the_double([] {
    at::Tensor dropped = drawn_ids();
    dropped[3][0] = -1;
    dropped[7].fill_(-1);
    for (const at::Tensor& ids : {drawn_ids(), dropped, at::full({6, 2}, -1, at::kLong), at::empty({0, 2}, at::kLong),
                                  drawn_ids().t().contiguous().t()}) {
      const at::Tensor there = ids.to(cuda);
      for (const std::int64_t padded_to : {0, 50}) {
        const bool complete = ids.numel() > 0 && ids.min().item<std::int64_t>() >= 0;
        nn::Permutation got;
        const std::size_t waits = waits_in([&] { got = nn::permutation_of(there, experts, padded_to, complete); });
        if (complete || padded_to > 0) {
          EXPECT_EQ(waits, 0U);
        }
        const nn::Permutation want = nn::permutation_of(ids, experts, padded_to);
        EXPECT_TRUE(at::equal(got.order.cpu(), want.order)) << ids.sizes() << " padded to " << padded_to;
        EXPECT_TRUE(at::equal(got.inverse.cpu(), want.inverse));
        EXPECT_TRUE(at::equal(got.counts.cpu(), want.counts));
        EXPECT_TRUE(at::equal(nn::host_counts(got), want.counts));
        EXPECT_TRUE(at::equal(got.ends.cpu(), want.counts.cumsum(0, at::kInt)));
      }
    }
  });
}

/// x, weights of slots, then gates, ups and downs.
Tensors leaves(std::int64_t inner, c10::Device device, at::ScalarType type) {
  at::manual_seed(6);
  Tensors all{at::randn({tokens, hidden}), at::rand({tokens, 3}) + 0.1};
  for (const auto& [rows, columns] : {std::pair(inner, hidden), {inner, hidden}, {hidden, inner}})
    for (std::int64_t e = 0; e < experts; ++e) all.push_back(at::randn({rows, columns}) * 0.2);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = all[i].to(at::kBFloat16).to(i == 1 ? at::kFloat : type).to(device).requires_grad_();
  return all;
}

/// The experts' result and all gradients. `waits`: number of host waits.
Tensors run(const Tensors& all, bool bf16, std::int64_t padded_to, bool gated, std::size_t* waits = nullptr) {
  const auto begin = all.begin() + 2;
  nn::ExpertWeights w{.gate = {begin, begin + experts},
                      .up = {begin + experts, begin + 2 * experts},
                      .down = {begin + 2 * experts, begin + 3 * experts},
                      .total = experts};
  if (!gated) w.gate.clear();
  nn::Routing routing;
  routing.ids = drawn_ids().to(all[0].device());
  routing.weights = all[1];
  routing.padded_to = padded_to;
  routing.complete = true;
  at::Tensor y;
  const at::Tensor factor = at::linspace(-1, 1, all[0].numel(), at::kFloat).view_as(all[0]).to(all[0].device());
  const std::size_t waited = waits_in([&] {
    {
      const nn::Autocast autocast(bf16, all[0].device().type());
      y = nn::experts(all[0], routing, w);
    }
    (y.to(at::kFloat) * factor).sum().backward();
  });
  if (waits != nullptr) *waits = waited;
  Tensors out{y.detach()};
  for (const at::Tensor& x : all) out.push_back(x.grad());
  return out;
}

void expect_close(const Tensors& got, const Tensors& want, double bound) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined()) << i;
    if (!want[i].defined()) continue;
    const at::Tensor x = got[i].cpu().to(at::kDouble), y = want[i].to(at::kDouble);
    EXPECT_LE((x - y).abs().max().item<double>(), bound * y.abs().max().item<double>()) << "result or gradient " << i;
  }
}

TEST(DeviceExperts, InFp32WithoutAWait) {
  on_the_double([] {
    for (const bool gated : {false, true}) {
      for (const std::int64_t padded_to : {0, 50}) {
        const Tensors want = run(leaves(40, cpu, at::kFloat), false, padded_to, gated);
        for (const c10::Device device : {cuda, c10::Device(c10::kCUDA, 1)}) {  // the first one is current
          std::size_t waits = 0;
          expect_close(run(leaves(40, device, at::kFloat), false, padded_to, gated, &waits), want, 1e-5);
          EXPECT_EQ(waits, 0U);
        }
      }
    }
  });
}

/// By autocast and by weight type, gated and ungated. An inner size of 36 is not aligned, so the loop over experts
/// runs.
TEST(DeviceExperts, InBf16WithoutAWait) {
  on_the_double([] {
    for (const std::int64_t inner : {40, 36}) {
      for (const bool gated : {false, true}) {
        for (const std::int64_t padded_to : {0, 50}) {
          const Tensors want = run(leaves(inner, cpu, at::kFloat), false, 0, gated);
          for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
            SCOPED_TRACE(concat(inner, gated ? " gated" : "", " padded to ", padded_to, " ", c10::toString(type)));
            std::size_t waits = 0;
            const Tensors all = leaves(inner, cuda, type);
            const Tensors got = run(all, type == at::kFloat, padded_to, gated, &waits);
            EXPECT_LE(waits, inner == 40 || padded_to > 0 ? 0U : 1U);
            expect_close(got, want, 3e-2);
            EXPECT_EQ(got.back().scalar_type(), type);
            EXPECT_EQ(got.back().abs().sum().item<double>(), 0) << "of an expert that no token chose";
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera::testing
