#include <tessera/nn/moe/experts.h>

#include <tessera/base/error.h>
#include <tessera/nn/moe/grouped.h>
#include <tessera/nn/moe/permute.h>
#include <tessera/nn/parameter_semantics.h>

namespace tessera::nn {

at::Tensor experts_of_rows(const at::Tensor& x, const at::Tensor& counts, const ExpertWeights& w,
                           const c10::intrusive_ptr<SourceGradients>& per_source) {
  if (!w.gate.empty()) return grouped_mlp(x, counts, w.gate, w.up, w.down, per_source);
  return grouped_linear(activated(w.activation, grouped_linear(x, counts, w.up, per_source), {}), counts, w.down,
                        per_source);
}

at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertWeights& w, const Meanwhile& meanwhile) {
  TESSERA_CHECK(w.first == 0 && w.held() == w.total, "experts ", w.first, " to ", w.first + w.held() - 1, " of ",
                w.total, " are here: what the others compute must be said by set_experts()");
  for (const at::Tensor& weight : w.up)
    TESSERA_CHECK(semantics_of(weight) == nullptr,
                  "the experts' matrices are cut over ranks: how parts are added up must be said by set_experts()");
  if (meanwhile) meanwhile();
  const Permutation permutation = permutation_of(routing.ids, w.total, routing.padded_to);
  return unpermute(experts_of_rows(permute(x, permutation), permutation.counts, w), permutation, routing.weights);
}

}  // namespace tessera::nn
