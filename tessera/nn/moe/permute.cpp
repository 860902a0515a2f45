#include <tessera/nn/moe/permute.h>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/slots.h>
#include <tessera/nn/device/kernels.h>
#include <tessera/nn/fused.h>

#include <algorithm>
#include <vector>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const std::int64_t* numbers(const at::Tensor& t) { return t.const_data_ptr<std::int64_t>(); }

/// Sum over each token's slots of their rows, weighted if `weights` is set.
at::Tensor sum_of_slots(const at::Tensor& rows, const at::Tensor& inverse, const float* weights) {
  const std::int64_t k = inverse.size(1), columns = rows.size(1);
  const at::Tensor out = at::empty({inverse.size(0), columns}, rows.options());
  for_rows(out.size(0), columns * k, [&](std::int64_t begin, std::int64_t end) {
    kernels::sum_slots(data(rows), numbers(inverse) + begin * k, weights ? weights + begin * k : nullptr,
                       data(out) + begin * columns, end - begin, k, columns);
  });
  return out;
}

/// Rows of x for the slots in order, weighted if `weights` is set.
at::Tensor rows_of_slots(const at::Tensor& x, const at::Tensor& order, std::int64_t k, const float* weights) {
  const std::int64_t columns = x.size(1);
  const at::Tensor out = at::empty({order.size(0), columns}, x.options());
  for_rows(out.size(0), columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::gather_slots(data(x), numbers(order) + begin, weights, data(out) + begin * columns, end - begin, k,
                          columns);
  });
  return out;
}

/// For each slot the dot product of its row with its token's row of y, which gives the gradient of its weight.
at::Tensor slot_products(const at::Tensor& rows, const at::Tensor& y, const at::Tensor& inverse) {
  const std::int64_t k = inverse.size(1), columns = rows.size(1);
  const at::Tensor out = at::empty(inverse.sizes(), rows.options());
  for_rows(inverse.size(0), columns * k, [&](std::int64_t begin, std::int64_t end) {
    kernels::dot_slots(data(rows), numbers(inverse) + begin * k, data(y) + begin * columns, data(out) + begin * k,
                       end - begin, k, columns);
  });
  return out;
}

/// Sum over each token's slots of their rows, by operators for any type and device.
at::Tensor added_up(const at::Tensor& rows, const at::Tensor& inverse) {
  // A dropped slot uses the row of zeros after the others.
  const at::Tensor padded = at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())});
  const at::Tensor row_of = inverse.where(inverse.ge(0), at::scalar_tensor(rows.size(0), inverse.options()));
  return padded.index_select(0, row_of.reshape({-1})).view({-1, inverse.size(1), rows.size(1)}).sum(1);
}

/// Permute for any type and device. The gradient of index_select itself would be added by atomics on a device, in
/// arbitrary order.
struct PermuteByOperators : torch::autograd::Function<PermuteByOperators> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& order,
                            const at::Tensor& inverse, bool padded) {
    ctx->save_for_backward({inverse});
    const at::Tensor rows = x.index_select(0, order.clamp_min(0).div(inverse.size(1), "floor"));
    return padded ? rows.masked_fill_(order.lt(0).unsqueeze(1), 0) : rows;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return {added_up(gradients[0], ctx->get_saved_variables()[0]), {}, {}, {}};
  }
};

struct Permute : torch::autograd::Function<Permute> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& order,
                            const at::Tensor& inverse) {
    ctx->save_for_backward({inverse});
    return rows_of_slots(x.contiguous(), order, inverse.size(1), nullptr);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return {sum_of_slots(gradients[0].contiguous(), ctx->get_saved_variables()[0], nullptr), {}, {}};
  }
};

struct Unpermute : torch::autograd::Function<Unpermute> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& order,
                            const at::Tensor& inverse, const at::Tensor& given_weights) {
    const at::Tensor rows = given.contiguous(), weights = given_weights.contiguous();
    ctx->save_for_backward({given_weights.requires_grad() ? rows : at::Tensor(), order, inverse, weights});
    return sum_of_slots(rows, inverse, weights.const_data_ptr<float>());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &order = saved[1], &inverse = saved[2], dy = gradients[0].contiguous();
    at::Tensor drows, dweights;
    if (ctx->needs_input_grad(0)) drows = rows_of_slots(dy, order, inverse.size(1), saved[3].const_data_ptr<float>());
    if (ctx->needs_input_grad(3)) dweights = slot_products(rows, dy, inverse);
    return {drows, {}, {}, dweights};
  }
};

/// Sorts by a loop on the host.
Permutation sorted_here(const at::Tensor& given, std::int64_t experts, std::int64_t padded_to) {
  const at::Tensor on_cpu = given.contiguous();
  const std::int64_t slots = on_cpu.numel();
  const std::int64_t* const expert_of = on_cpu.const_data_ptr<std::int64_t>();
  Permutation p;
  p.counts = at::zeros({experts}, at::kLong);
  std::int64_t* const counts = p.counts.mutable_data_ptr<std::int64_t>();
  for (std::int64_t s = 0; s < slots; ++s) {
    TESSERA_CHECK(expert_of[s] >= -1 && expert_of[s] < experts, "slot ", s, " names expert ", expert_of[s], " of ",
                  experts);
    if (expert_of[s] >= 0) ++counts[expert_of[s]];
  }
  p.padded = padded_to > 0;
  if (p.padded)
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t rows = std::min(padded_to, on_cpu.size(0));
      TESSERA_CHECK(counts[e] <= rows, counts[e], " slots of expert ", e, ", which has only ", rows, " rows");
      counts[e] = rows;
    }
  std::vector<std::int64_t> next(static_cast<std::size_t>(experts) + 1, 0);
  for (std::int64_t e = 0; e < experts; ++e)
    next[static_cast<std::size_t>(e) + 1] = next[static_cast<std::size_t>(e)] + counts[e];
  p.order = p.padded ? at::full({next.back()}, -1, at::kLong) : at::empty({next.back()}, at::kLong);
  p.inverse = at::empty(on_cpu.sizes(), at::kLong);
  std::int64_t *const order = p.order.mutable_data_ptr<std::int64_t>(), *const inverse =
                                                                            p.inverse.mutable_data_ptr<std::int64_t>();
  for (std::int64_t s = 0; s < slots; ++s) {
    inverse[s] = -1;
    if (expert_of[s] < 0) continue;
    const std::int64_t row = next[static_cast<std::size_t>(expert_of[s])]++;
    order[row] = s;
    inverse[s] = row;
  }
  p.known = p.counts;
  return p;
}

/// Sorts by kernels of the device.
Permutation sorted_there(const at::Tensor& given, std::int64_t experts, std::int64_t padded_to, bool complete) {
  const at::Tensor ids = given.contiguous();
  const std::int64_t slots = ids.numel(), rows_each = padded_to > 0 ? std::min(padded_to, ids.size(0)) : 0;
  Permutation p;
  p.padded = padded_to > 0;
  const std::int64_t rows = p.padded ? rows_each * experts : slots;
  TESSERA_CHECK(slots < std::int64_t{1} << 31 && rows < std::int64_t{1} << 31, slots, " slots in ", rows,
                " rows; both must be below 2^31");
  p.order = p.padded ? at::full({rows}, -1, ids.options()) : at::empty({rows}, ids.options());
  p.inverse = at::empty_like(ids);
  p.counts = at::empty({experts}, ids.options());
  p.ends = at::empty({experts}, ids.options().dtype(at::kInt));
  const at::Tensor scratch = at::zeros({kernels::cuda::slot_scratch(slots, experts)}, ids.options().dtype(at::kInt));
  const c10::DeviceGuard guard(ids.device());
  device_kernels({})->sort_slots({.ids = numbers(ids),
                                  .rows_each = rows_each,
                                  .order = p.order.mutable_data_ptr<std::int64_t>(),
                                  .inverse = p.inverse.mutable_data_ptr<std::int64_t>(),
                                  .counts = p.counts.mutable_data_ptr<std::int64_t>(),
                                  .ends = p.ends.mutable_data_ptr<std::int32_t>(),
                                  .scratch = scratch.mutable_data_ptr<std::int32_t>()},
                                 slots, experts);
  if (p.padded) {
    p.known = at::full({experts}, rows_each, at::kLong);
  } else if (!complete) {
    p.known = p.counts.cpu();
    p.order = p.order.narrow(0, 0, p.known.sum().item<std::int64_t>());
  }
  return p;
}

}  // namespace

at::Tensor host_counts(const Permutation& p) { return p.known.defined() ? p.known : p.counts.cpu(); }

Permutation permutation_of(const at::Tensor& ids, std::int64_t experts, std::int64_t padded_to, bool complete) {
  TESSERA_CHECK(ids.dim() == 2 && ids.scalar_type() == at::kLong,
                "the tokens' expert ids must be int64 [N, k]; they are ", c10::str(ids.scalar_type()), " ",
                c10::str(ids.sizes()));
  return ids.is_cuda() ? sorted_there(ids, experts, padded_to, complete) : sorted_here(ids, experts, padded_to);
}

at::Tensor permute(const at::Tensor& x, const Permutation& p) {
  TESSERA_CHECK(x.dim() == 2 && x.size(0) == p.inverse.size(0), "x is ", c10::str(x.sizes()), " for ",
                p.inverse.size(0), " routed tokens");
  if (fusable({x})) return Permute::apply(x, p.order, p.inverse);
  return PermuteByOperators::apply(x, p.order, p.inverse, p.padded);
}

at::Tensor unpermute(const at::Tensor& rows, const Permutation& p, const at::Tensor& weights) {
  TESSERA_CHECK(rows.dim() == 2 && rows.size(0) == p.order.size(0) && weights.sizes() == p.inverse.sizes(), "rows ",
                c10::str(rows.sizes()), " and weights ", c10::str(weights.sizes()), " for ", p.order.size(0),
                " rows of slots ", c10::str(p.inverse.sizes()));
  if (fusable({rows, weights})) return Unpermute::apply(rows, p.order, p.inverse, weights);
  const at::Tensor of_row = weights.reshape({-1}).index_select(0, p.order.clamp_min(0));  // weights of zero rows are
                                                                                          // not used
  const at::Tensor weighted = rows * of_row.unsqueeze(1).to(rows.scalar_type());
  return added_up(weighted, p.inverse);
}

}  // namespace tessera::nn
