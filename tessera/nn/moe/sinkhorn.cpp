#include <tessera/nn/moe/sinkhorn.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>

namespace tessera::nn {

at::Tensor sinkhorn(const at::Tensor& logits, double tolerance) {
  TESSERA_CHECK(logits.dim() == 2, "logits ", c10::str(logits.sizes()), "; they must be [N, experts]");
  const at::NoGradGuard no_grad;
  const at::Tensor table = logits.detach().to(at::kDouble).exp();
  if (table.size(0) == 0) return table;
  constexpr double tiny = 1e-8;  // guards against division by an empty sum
  constexpr int most_rounds = 1000;
  const auto tokens = static_cast<double>(table.size(0)), experts = static_cast<double>(table.size(1));
  at::Tensor of_experts = at::ones({table.size(1)}, table.options()), of_tokens;
  for (int round = 0; round < most_rounds; ++round) {
    of_tokens = (tokens * ((table * of_experts).sum(1) + tiny)).reciprocal();
    const at::Tensor next = (experts * ((table * of_tokens.unsqueeze(1)).sum(0) + tiny)).reciprocal();
    const double change = (next - of_experts).abs().mean().item<double>();
    of_experts = next;
    if (change <= tolerance) break;
  }
  return table * of_experts * of_tokens.unsqueeze(1);
}

}  // namespace tessera::nn
