#include <tessera/nn/moe/experts.h>

#include <tessera/base/error.h>
#include <tessera/nn/device/groups.h>
#include <tessera/nn/moe/grouped.h>
#include <tessera/nn/parameter_semantics.h>

namespace tessera::nn {

at::Tensor experts_of_rows(const at::Tensor& x, const at::Tensor& counts, const ExpertWeights& w,
                           const c10::intrusive_ptr<SourceGradients>& per_source) {
  if (!w.gate.empty()) return grouped_mlp(x, counts, w.gate, w.up, w.down, per_source);
  return grouped_linear(activated(w.activation, grouped_linear(x, counts, w.up, per_source), {}), counts, w.down,
                        per_source);
}

at::Tensor experts_of_permuted(const at::Tensor& x, const Permutation& permutation, const ExpertWeights& w) {
  const at::Tensor rows = permute(x, permutation);
  const auto type = device_groups_type(rows, w.up);
  const bool stays =
      type && device_groups_type(rows, w.down) == type && (w.gate.empty() || device_groups_type(rows, w.gate) == type);
  if (stays) return experts_of_rows(rows.to(*type), permutation.ends, w);  // once for gate and up together
  return experts_of_rows(rows, host_counts(permutation), w);
}

at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertWeights& w, const Meanwhile& meanwhile) {
  TESSERA_CHECK(w.first == 0 && w.held() == w.total, "experts ", w.first, " to ", w.first + w.held() - 1, " of ",
                w.total, " are on this process: set_experts() must provide the computation of the others");
  for (const at::Tensor& weight : w.up)
    TESSERA_CHECK(
        semantics_of(weight) == nullptr,
        "the experts' matrices are cut over ranks: set_experts() must provide a computation that adds the parts");
  if (meanwhile) meanwhile();
  const Permutation permutation = permutation_of(routing.ids, w.total, routing.padded_to, routing.complete);
  return unpermute(experts_of_permuted(x, permutation, w), permutation, routing.weights);
}

}  // namespace tessera::nn
