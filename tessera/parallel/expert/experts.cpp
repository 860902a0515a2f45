#include <tessera/parallel/expert/experts.h>

#include <tessera/base/error.h>
#include <tessera/parallel/expert/dispatch.h>

namespace tessera {

layout::Range own_experts(std::int64_t experts, const comm::Group& group) {
  return own_experts(experts, ExpertRanks{.experts = group});
}

layout::Range own_experts(std::int64_t experts, const ExpertRanks& ranks) {
  const std::int64_t ep = ranks.experts.size() / ranks.parts, place = ranks.experts.rank() / ranks.parts;
  if (experts % ep != 0)
    throw InputError(concat("expert parallelism: ", experts, " experts cannot be divided evenly among the ", ep,
                            " ranks of '", ranks.experts.name(), "'",
                            ranks.parts > 1 ? concat(" / etp ", ranks.parts) : std::string(),
                            "; use a number of ranks that divides them"));
  const std::int64_t each = experts / ep;
  return {place * each, (place + 1) * each};
}

bool is_expert_parameter(const std::string& name) { return name.find(".experts.") != std::string::npos; }

nn::ExpertsFunction expert_parallel(const comm::Group& group,
                                    const c10::intrusive_ptr<nn::SourceGradients>& per_source) {
  if (group.size() == 1) return nn::experts;
  TESSERA_CHECK(!per_source || per_source->sources() == group.size(), "gradients of ", per_source->sources(),
                " sources for the ", group.size(), " ranks of '", group.name(), "'");
  return [group, per_source](const at::Tensor& x, const nn::Routing& routing, const nn::ExpertWeights& w,
                             const nn::Meanwhile& meanwhile) {
    const layout::Range own = own_experts(w.total, group);
    const std::int64_t held = w.held();
    TESSERA_CHECK(held == own.end - own.begin && w.first == own.begin, "experts ", w.first, " to ", w.first + held - 1,
                  " of ", w.total, " are on rank ", group.rank(), " of '", group.name(), "', which must hold experts ",
                  own.begin, " to ", own.end - 1, " (keep_experts)");
    return parallel::dispatched_experts(group, x, routing.ids, routing.weights, w,
                                        {.padded_to = routing.padded_to, .per_source = per_source}, meanwhile);
  };
}

}  // namespace tessera
