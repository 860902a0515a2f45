#include <tessera/parallel/expert/experts.h>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/nn/moe/permute.h>
#include <tessera/parallel/expert/dispatch.h>
#include <tessera/parallel/sharding/managed.h>

#include <numeric>
#include <utility>
#include <vector>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Counts = std::vector<std::int64_t>;

std::int64_t sum_of(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

at::Tensor exchange(const comm::Group& group, const at::Tensor& rows, const Counts& sent, const Counts& received,
                    const char* what) {
  const comm::Tag tag(what);
  const at::Tensor out = at::empty({sum_of(received), rows.size(1)}, rows.options());
  group.all_to_all(out, rows.contiguous(), received, sent).wait();
  return out;
}

/// rows [R, C], the first sent[0] for rank 0 and so on -> those that came, rank by rank.
struct Exchanged : torch::autograd::Function<Exchanged> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const comm::Group& group, const Counts& sent,
                            const Counts& received, const char* what) {
    ctx->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(group, what));
    ctx->saved_data["sent"] = sent;
    ctx->saved_data["received"] = received;
    return exchange(group, rows, sent, received, what);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto held = c10::static_intrusive_pointer_cast<Held>(ctx->saved_data["group"].toCapsule());
    return {exchange(held->group, gradients[0], ctx->saved_data["received"].toIntVector(),
                     ctx->saved_data["sent"].toIntVector(), held->what),
            {},
            {},
            {},
            {}};
  }

 private:
  struct Held : torch::CustomClassHolder {
    Held(comm::Group its_group, const char* name) : group(std::move(its_group)), what(name) {}
    comm::Group group;
    const char* what;
  };
};

/// rows [R, C] in another order: row i is row order[i] of those given.
struct Reordered : torch::autograd::Function<Reordered> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& order,
                            const at::Tensor& inverse) {
    ctx->save_for_backward({inverse});
    return rows.index_select(0, order);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return {gradients[0].index_select(0, ctx->get_saved_variables()[0]), {}, {}};
  }
};

/// What came lies rank by rank, and of each rank expert by expert; the products want it expert by expert.
struct Arrivals {
  Counts from_rank;           ///< rows that each rank sent
  at::Tensor order, inverse;  ///< int64 [R]
  at::Tensor counts;          ///< int64 [experts here], on the CPU
};

/// `counts` [ranks, experts here]: rows of each rank for each expert.
Arrivals arrivals_of(const at::Tensor& counts, c10::Device device) {
  const std::int64_t ranks = counts.size(0), experts = counts.size(1);
  const std::int64_t* const count = counts.const_data_ptr<std::int64_t>();
  Arrivals arrivals;
  Counts begins(static_cast<std::size_t>(ranks * experts));
  std::int64_t rows = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    arrivals.from_rank.push_back(0);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      const std::int64_t here = count[rank * experts + expert];
      begins[static_cast<std::size_t>(rank * experts + expert)] = rows;
      arrivals.from_rank.back() += here;
      rows += here;
    }
  }
  arrivals.counts = counts.sum(0);
  const at::Tensor order = at::empty({rows}, at::kLong), inverse = at::empty({rows}, at::kLong);
  std::int64_t *const source = order.mutable_data_ptr<std::int64_t>(), *const place =
                                                                           inverse.mutable_data_ptr<std::int64_t>();
  std::int64_t next = 0;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t begin = begins[static_cast<std::size_t>(rank * experts + expert)];
      for (std::int64_t i = 0; i < count[rank * experts + expert]; ++i, ++next) {
        source[next] = begin + i;
        place[begin + i] = next;
      }
    }
  arrivals.order = order.to(device);
  arrivals.inverse = inverse.to(device);
  return arrivals;
}

}  // namespace

namespace parallel {

at::Tensor dispatched_experts(const comm::Group& group, const at::Tensor& x, const at::Tensor& ids,
                              const at::Tensor& slot_weights, const nn::ExpertWeights& w,
                              const DispatchOptions& options) {
  const std::int64_t held = w.held();
  const nn::Permutation permutation = nn::permutation_of(ids, held * group.size(), options.padded_to);
  const at::Tensor counts_to = permutation.counts.view({group.size(), held});  // [ranks, experts there]
  at::Tensor counts_from = at::empty_like(counts_to);
  {
    const comm::Tag tag("tokens of each expert");
    const c10::Device device = group.device();
    const at::Tensor there = at::empty(counts_to.sizes(), at::TensorOptions(at::kLong).device(device));
    group.all_to_all(there.flatten(), counts_to.flatten().to(device)).wait();
    counts_from = there.cpu();
  }
  const at::Tensor rows_to = counts_to.sum(1);
  const Counts sent(rows_to.const_data_ptr<std::int64_t>(), rows_to.const_data_ptr<std::int64_t>() + group.size());
  const Arrivals arrivals = arrivals_of(counts_from, x.device());
  const at::Tensor came =
      Exchanged::apply(nn::permute(x, permutation), group, sent, arrivals.from_rank, "tokens to experts");
  at::Tensor by_rank;
  if (options.apart) {  // in the order in which they came, each rank's by itself
    by_rank = nn::experts_of_rows(came, counts_from, w, options.apart);
  } else {
    const at::Tensor sorted = Reordered::apply(came, arrivals.order, arrivals.inverse);
    by_rank = Reordered::apply(nn::experts_of_rows(sorted, arrivals.counts, w), arrivals.inverse, arrivals.order);
  }
  const at::Tensor back = Exchanged::apply(by_rank, group, arrivals.from_rank, sent, "results of experts");
  return nn::unpermute(back, permutation, slot_weights);
}

}  // namespace parallel

layout::Range own_experts(std::int64_t experts, const comm::Group& group) {
  return own_experts(experts, ExpertRanks{.experts = group});
}

layout::Range own_experts(std::int64_t experts, const ExpertRanks& ranks) {
  const std::int64_t ep = ranks.experts.size() / ranks.parts, place = ranks.experts.rank() / ranks.parts;
  if (experts % ep != 0)
    throw InputError(concat("expert parallelism: ", experts, " experts do not divide among the ", ep, " ranks of '",
                            ranks.experts.name(), "'", ranks.parts > 1 ? concat(" / etp ", ranks.parts) : std::string(),
                            "; use a number of ranks that divides them"));
  const std::int64_t each = experts / ep;
  return {place * each, (place + 1) * each};
}

bool is_expert_parameter(const std::string& name) { return name.find(".experts.") != std::string::npos; }

nn::ExpertsFunction expert_parallel(const comm::Group& group, const c10::intrusive_ptr<nn::SourceGradients>& apart) {
  if (group.size() == 1) return nn::experts;
  TESSERA_CHECK(!apart || apart->sources() == group.size(), "gradients of ", apart->sources(), " sources for the ",
                group.size(), " ranks of '", group.name(), "'");
  return [group, apart](const at::Tensor& x, const nn::Routing& routing, const nn::ExpertWeights& w) {
    const layout::Range own = own_experts(w.total, group);
    const std::int64_t held = w.held();
    TESSERA_CHECK(held == own.end - own.begin && w.first == own.begin, "experts ", w.first, " to ", w.first + held - 1,
                  " of ", w.total, " are on rank ", group.rank(), " of '", group.name(), "', which is to have ",
                  own.begin, " to ", own.end - 1, " (keep_experts)");
    return parallel::dispatched_experts(group, x, routing.ids, routing.weights, w,
                                        {.padded_to = routing.padded_to, .apart = apart});
  };
}

}  // namespace tessera
