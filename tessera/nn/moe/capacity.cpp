#include <tessera/nn/moe/capacity.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/moe/permute.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::nn {

std::int64_t expert_capacity(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, double factor) {
  TESSERA_CHECK(factor > 0, "a capacity factor of ", factor, "; it must be positive");
  return static_cast<std::int64_t>(
      std::ceil(static_cast<double>(tokens * top_k) / static_cast<double>(experts) * factor));
}

Limited within_capacity(const Routing& routing, std::int64_t experts, std::int64_t capacity, DropBy by) {
  Limited limited{routing};
  const Permutation p = permutation_of(routing.ids.cpu(), experts);
  const at::Tensor ids = routing.ids.cpu().clone(),
                   weights = routing.weights.detach().cpu().to(at::kFloat).contiguous();
  const float* const weight = weights.const_data_ptr<float>();
  const std::int64_t *const order = p.order.const_data_ptr<std::int64_t>(), *const counts =
                                                                                p.counts.const_data_ptr<std::int64_t>();
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < experts; begin += counts[e++]) {
    if (counts[e] <= capacity) continue;
    std::vector<std::int64_t> slots(order + begin, order + begin + counts[e]);
    if (by == DropBy::probability)
      std::stable_sort(slots.begin(), slots.end(),
                       [&](std::int64_t a, std::int64_t b) { return weight[a] > weight[b]; });
    for (auto slot = slots.begin() + capacity; slot != slots.end(); ++slot)
      ids.mutable_data_ptr<std::int64_t>()[*slot] = -1;
    limited.dropped += counts[e] - capacity;
  }
  if (limited.dropped == 0) return limited;
  limited.routing.ids = ids.to(routing.ids.device());
  limited.routing.complete = false;
  limited.routing.weights = routing.weights.masked_fill(limited.routing.ids.lt(0), 0);
  return limited;
}

}  // namespace tessera::nn
