#include <tessera/nn/moe/experts.h>

#include <tessera/base/error.h>
#include <tessera/nn/moe/grouped.h>
#include <tessera/nn/moe/permute.h>
#include <tessera/nn/redirect.h>

namespace tessera::nn {

at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertWeights& w) {
  const auto held = static_cast<std::int64_t>(w.gate.size());
  TESSERA_CHECK(w.first == 0 && held == w.total, "experts ", w.first, " to ", w.first + held - 1, " of ", w.total,
                " are here: what the others compute must be said by set_experts()");
  for (const at::Tensor& weight : w.gate)
    TESSERA_CHECK(redirect_of(weight) == nullptr,
                  "the experts' matrices are cut over ranks: how parts are added up must be said by set_experts()");
  const Permutation permutation = permutation_of(routing.ids, w.total);
  return unpermute(grouped_mlp(permute(x, permutation), permutation.counts, w.gate, w.up, w.down), permutation,
                   routing.weights);
}

}  // namespace tessera::nn
