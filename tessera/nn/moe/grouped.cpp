#include <tessera/nn/moe/grouped.h>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/dispatch.h>
#include <tessera/kernels/cpu/swiglu.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/groups.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/materialized.h>
#include <tessera/nn/moe/grouped_products.h>
#include <tessera/nn/weight_gradients.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;
using Half = std::optional<at::ScalarType>;

/// First row of each group; the last entry is the total number of rows.
std::vector<std::int64_t> starts_of(const at::Tensor& counts) {
  std::vector<std::int64_t> starts{0};
  const std::int64_t* const count = counts.const_data_ptr<std::int64_t>();
  for (std::int64_t e = 0; e < counts.numel(); ++e) starts.push_back(starts.back() + count[e]);
  return starts;
}

/// `rows` rounded up, so that only a few different numbers of rows occur: steps are an eighth of a power of two and at
/// least 16.
std::int64_t padded_rows(std::int64_t rows) {
  const std::int64_t step =
      std::max<std::int64_t>(16, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows)) / 8));
  return (rows + step - 1) / step * step;
}

/// x [rows, columns] padded with rows of zeros.
at::Tensor padded(const at::Tensor& x, std::int64_t rows) {
  if (x.size(0) == rows) return x;
  const at::Tensor all = at::empty({rows, x.size(1)}, x.options());
  all.narrow(0, 0, x.size(0)).copy_(x);
  all.narrow(0, x.size(0), rows - x.size(0)).zero_();
  return all;
}

/// Products of groups of rows; group e has weight e, modulo the number of weights (several sources, one after another).
/// fp32 on the CPU: all at once (multiply_all) or, with `half`, of operands rounded to that type. If only a device
/// knows the lengths of groups: by one product of the device. All other cases: by at::mm, one after another.
///
/// For half precision oneDNN builds a separate kernel for every number of rows, and keeps about a thousand of them:
/// routing would build hundreds in each step, a third of a gigabyte. So groups are padded to a few different numbers of
/// rows there; zeros do not change sums. Where bf16 has no instructions, multiply_half() widens, and no kernels are
/// built.
class Groups {
 public:
  /// `counts` as in grouped_linear().
  Groups(const at::Tensor& counts, Half half) : half_(half) {
    if (counts.is_cpu())
      starts_ = starts_of(counts);
    else
      ends_ = counts;
  }

  /// Like rows(), into new memory of `type`.
  at::Tensor product(const at::Tensor& x, const Tensors& weights, bool out_in, at::ScalarType type) const {
    if (ends_.defined()) return device_rows_of_groups(x, ends_, weights, out_in);
    const at::Tensor out = at::empty({x.size(0), weights[0].size(out_in ? 0 : 1)}, x.options().dtype(type));
    rows(x, weights, out_in, out);
    return out;
  }

  /// Writes x_e W_e^T (`out_in`), or x_e W_e, into the rows of `out`, or adds it to them.
  void rows(const at::Tensor& x, const Tensors& weights, bool out_in, const at::Tensor& out,
            bool accumulate = false) const {
    if (all_at_once(x)) {
      std::vector<Product> products;
      Tensors kept;  // keeps copies alive until the products have been computed
      for (const at::Tensor& weight : weights) kept.push_back(weight.contiguous());
      for (std::size_t e = 0; e + 1 < starts_.size(); ++e) {
        const at::Tensor& w = kept[e % weights.size()];
        products.push_back({.a = data(x) + starts_[e] * x.size(1),
                            .a_stride = x.size(1),
                            .a_transposed = false,
                            .b = w.const_data_ptr<float>(),
                            .b_stride = w.size(1),
                            .b_transposed = out_in,
                            .c = data(out) + starts_[e] * out.size(1),
                            .c_stride = out.size(1),
                            .m = starts_[e + 1] - starts_[e],
                            .n = out.size(1),
                            .k = x.size(1),
                            .accumulate = accumulate});
      }
      return multiply_all(products);
    }
    for (std::size_t e = 0; e + 1 < starts_.size(); ++e) {
      if (starts_[e] == starts_[e + 1]) continue;
      const at::Tensor& weight = weights[e % weights.size()];
      if (half_) {
        const at::Tensor narrow = weight.to(*half_), w = out_in ? narrow.t() : narrow, here = of(out, e);
        if (widens()) {
          multiply_half(here, of(x, e), w, accumulate);
          continue;
        }
        const at::Tensor rounded = at::mm(padded(of(x, e), few(e)), w).narrow(0, 0, here.size(0));
        accumulate ? here.add_(rounded) : here.copy_(rounded);
        continue;
      }
      const at::Tensor w = out_in ? weight.t() : weight;
      at::Tensor here = of(out, e);
      if (accumulate)
        here.addmm_(of(x, e), w);
      else
        at::mm_out(here, of(x, e), w);
    }
  }

  /// dy_e^T x_e, the gradient of W_e, for every group.
  Tensors weights(const at::Tensor& dy, const at::Tensor& x, at::ScalarType type) const {
    if (ends_.defined()) return device_weights_of_groups(dy, x, ends_, type);
    Tensors gradients;
    for (std::size_t e = 0; e + 1 < starts_.size(); ++e)
      gradients.push_back(at::empty({dy.size(1), x.size(1)}, x.options().dtype(half_ ? at::kFloat : type)));
    if (all_at_once(x)) {
      std::vector<Product> products;
      for (std::size_t e = 0; e < gradients.size(); ++e)
        products.push_back({.a = data(dy) + starts_[e] * dy.size(1),
                            .a_stride = dy.size(1),
                            .a_transposed = true,
                            .b = data(x) + starts_[e] * x.size(1),
                            .b_stride = x.size(1),
                            .b_transposed = false,
                            .c = data(gradients[e]),
                            .c_stride = x.size(1),
                            .m = dy.size(1),
                            .n = x.size(1),
                            .k = starts_[e + 1] - starts_[e]});
      multiply_all(products);
      return gradients;
    }
    for (std::size_t e = 0; e < gradients.size(); ++e)
      if (starts_[e] == starts_[e + 1])
        gradients[e].zero_();
      else if (half_)
        multiply_half(gradients[e], padded(of(dy, e), few(e)).t(), padded(of(x, e), few(e)), false);
      else
        at::mm_out(gradients[e], of(dy, e).t(), of(x, e));
    return gradients;
  }

 private:
  bool all_at_once(const at::Tensor& x) const { return !half_ && fusable({x}); }
  bool widens() const { return half_ && !has_instructions(*half_); }
  at::Tensor of(const at::Tensor& x, std::size_t e) const { return x.slice(0, starts_[e], starts_[e + 1]); }
  std::int64_t few(std::size_t e) const { return padded_rows(starts_[e + 1] - starts_[e]); }

  std::vector<std::int64_t> starts_;
  at::Tensor ends_;  // ends of the groups on a device; replaces starts_
  Half half_;
};

/// Materialises lists of parameters.
Materialized present(std::initializer_list<const Tensors*> lists) {
  std::vector<const at::Tensor*> all;
  for (const Tensors* list : lists)
    for (const at::Tensor& t : *list) all.push_back(&t);
  return Materialized(all);
}

/// Computes the gradients of the inputs first, first + 1, ... now, or defers `form`, which computes them.
variable_list now_or_later(AutogradContext* ctx, std::size_t first, std::size_t count, const at::Tensor& like,
                           const std::function<Tensors()>& form) {
  const auto found = ctx->saved_data.find("late");
  if (found != ctx->saved_data.end()) {
    const auto late = c10::static_intrusive_pointer_cast<WeightGradients>(found->second.toCapsule());
    if (late->deferring()) {
      late->leave(first, count, like, form);
      return variable_list(count);
    }
  }
  return form();
}

void remember(AutogradContext* ctx, const at::Tensor& counts, Half half) {
  ctx->saved_data["counts"] = counts;
  ctx->saved_data["half"] = static_cast<std::int64_t>(half.value_or(at::kFloat));
  if (const auto& current = WeightGradients::current()) [[unlikely]]
    ctx->saved_data["late"] = c10::IValue::make_capsule(current);
}

Groups groups_of(AutogradContext* ctx) {
  const auto type = static_cast<at::ScalarType>(ctx->saved_data["half"].toInt());
  return {ctx->saved_data["counts"].toTensor(), type == at::kFloat ? Half() : Half(type)};
}

/// The destination of gradients of all sources but the first, and the weights they belong to, as the caller has them.
struct PerSource {
  c10::intrusive_ptr<SourceGradients> to;
  Tensors owners;

  /// Takes gradients of every source's groups, list by list, and returns those of the first source; stores the others
  /// in `to`.
  Tensors first_of(const std::vector<Tensors>& lists) const {
    Tensors first;
    std::size_t owner = 0;
    for (const Tensors& all : lists) {
      const std::size_t groups = to ? all.size() / static_cast<std::size_t>(to->sources()) : all.size();
      for (std::size_t e = 0; e < groups; ++e) {
        first.push_back(all[e]);
        if (!to) continue;
        const at::Tensor& weight = owners[owner++];
        if (!weight.requires_grad()) continue;
        Tensors others;
        for (std::size_t i = e + groups; i < all.size(); i += groups) others.push_back(all[i].to(weight.scalar_type()));
        to->add(weight, others);
      }
    }
    return first;
  }
};

void remember(AutogradContext* ctx, const PerSource& per_source) {
  if (!per_source.to) return;
  ctx->saved_data["apart"] = c10::IValue::make_capsule(per_source.to);
  ctx->saved_data["owners"] = per_source.owners;
}

PerSource per_source_of(AutogradContext* ctx) {
  const auto found = ctx->saved_data.find("apart");
  if (found == ctx->saved_data.end()) return {};
  return {c10::static_intrusive_pointer_cast<SourceGradients>(found->second.toCapsule()),
          ctx->saved_data["owners"].toTensorVector()};
}

bool any_requires_grad(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) { return t.requires_grad(); });
}

/// x in the type of its products; unchanged without autocast.
at::Tensor narrowed(const at::Tensor& x, Half half) { return half ? x.to(*half) : x; }

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& counts,
                            at::TensorList list, const PerSource& per_source) {
    remember(ctx, per_source);
    const Tensors weights = list.vec();
    const Materialized materialized = present({&weights});
    const Half half = fusable({given}) ? autocast_type(at::kCPU) : Half();
    const at::Tensor x = narrowed(given.contiguous(), half);
    remember(ctx, counts, half);
    const at::Tensor y = groups_of(ctx).product(x, weights, /*out_in=*/true, given.scalar_type());
    Tensors saved{any_requires_grad(weights) ? x : at::Tensor()};
    saved.insert(saved.end(), weights.begin(), weights.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["type"] = static_cast<std::int64_t>(weights[0].scalar_type());
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const Tensors weights(saved.begin() + 1, saved.end());
    const Groups groups = groups_of(ctx);
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["half"].toInt());
    const at::Tensor dy = gradients[0].contiguous(), narrow = type == at::kFloat ? dy : dy.to(type);
    variable_list all(3 + weights.size());
    if (ctx->needs_input_grad(0)) {
      const Materialized materialized = present({&weights});
      all[0] = groups.product(narrow, weights, /*out_in=*/false, dy.scalar_type());
    }
    if (!x.defined()) return all;
    const auto form = [groups, x = x.detach(), narrow, weight_type = ctx->saved_data["type"].toInt(),
                       per_source = per_source_of(ctx)] {
      return per_source.first_of({groups.weights(narrow, x, static_cast<at::ScalarType>(weight_type))});
    };
    const variable_list formed = now_or_later(ctx, 2, weights.size(), dy, form);
    std::copy(formed.begin(), formed.end(), all.begin() + 2);
    return all;
  }
};

/// gate, up and down are one list, one after another.
struct GroupedMlp : torch::autograd::Function<GroupedMlp> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& counts,
                            at::TensorList list, const PerSource& per_source) {
    remember(ctx, per_source);
    const Tensors weights = list.vec();
    const Materialized materialized = present({&weights});
    const Half half = autocast_type(at::kCPU);
    const at::Tensor x = narrowed(given.contiguous(), half);
    remember(ctx, counts, half);
    const Groups groups = groups_of(ctx);
    const auto [gate, up, down] = split(weights);
    const std::int64_t rows = x.size(0), inner = gate[0].size(0);
    const at::Tensor g = at::empty({rows, inner}, given.options()), u = at::empty_like(g);
    groups.rows(x, gate, /*out_in=*/true, g);
    groups.rows(x, up, /*out_in=*/true, u);
    const at::Tensor y = at::empty({rows, x.size(1)}, given.options());
    groups.rows(narrowed(activated(g, u), half), down, /*out_in=*/true, y);
    Tensors saved{any_requires_grad(weights) ? x : at::Tensor(), g, u};
    saved.insert(saved.end(), weights.begin(), weights.end());
    ctx->save_for_backward(saved);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &g = saved[1], &u = saved[2];
    const Tensors weights(saved.begin() + 3, saved.end());
    const auto [gate, up, down] = split(weights);
    const Groups groups = groups_of(ctx);
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["half"].toInt());
    const Half half = type == at::kFloat ? Half() : Half(type);
    const at::Tensor dy = narrowed(gradients[0].contiguous(), half);
    const Materialized materialized = present({&weights});
    at::Tensor dg = at::empty_like(g), du = at::empty_like(g);
    const at::Tensor h = x.defined() ? narrowed(activated(g, u), half) : at::Tensor();
    groups.rows(dy, down, /*out_in=*/false, dg);  // temporarily the gradient of h
    for_rows(g.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      kernels::swiglu_backward(data(g) + begin, data(u) + begin, data(dg) + begin, data(dg) + begin, data(du) + begin,
                               end - begin);
    });
    dg = narrowed(dg, half);
    du = narrowed(du, half);
    variable_list all(3 + weights.size());
    if (ctx->needs_input_grad(0)) {
      all[0] = at::empty({g.size(0), gate[0].size(1)}, g.options());
      groups.rows(dg, gate, /*out_in=*/false, all[0]);
      groups.rows(du, up, /*out_in=*/false, all[0], /*accumulate=*/true);
    }
    if (!x.defined()) return all;
    const auto form = [groups, x = x.detach(), h, dg, du, dy, per_source = per_source_of(ctx)] {
      return per_source.first_of(
          {groups.weights(dg, x, at::kFloat), groups.weights(du, x, at::kFloat), groups.weights(dy, h, at::kFloat)});
    };
    const variable_list formed = now_or_later(ctx, 2, weights.size(), gradients[0], form);
    std::copy(formed.begin(), formed.end(), all.begin() + 2);
    return all;
  }

 private:
  static std::array<Tensors, 3> split(const Tensors& weights) {
    const auto each = static_cast<std::ptrdiff_t>(weights.size() / 3);
    const auto begin = weights.begin();
    return {Tensors(begin, begin + each), Tensors(begin + each, begin + 2 * each),
            Tensors(begin + 2 * each, weights.end())};
  }
  static at::Tensor activated(const at::Tensor& g, const at::Tensor& u) {
    const at::Tensor h = at::empty_like(g);
    for_rows(g.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      kernels::swiglu(data(g) + begin, data(u) + begin, data(h) + begin, end - begin);
    });
    return h;
  }
};

void check(const at::Tensor& x, const at::Tensor& counts, const Tensors& weights, std::int64_t in,
           const c10::intrusive_ptr<SourceGradients>& per_source) {
  if (!counts.is_cpu()) {
    TESSERA_CHECK(!per_source && counts.dim() == 1 && counts.scalar_type() == at::kInt &&
                      counts.size(0) == static_cast<std::int64_t>(weights.size()) && counts.device() == x.device() &&
                      x.dim() == 2 && x.size(1) == in && device_groups_type(x, weights),
                  "ends ", c10::str(counts.sizes()), " of groups of rows ", c10::str(x.sizes()), " for ",
                  weights.size(),
                  " weights; on a device they must be int32, one per group, with a single source, "
                  "and the device must support products of such groups");
    return;
  }
  TESSERA_CHECK(!weights.empty() && counts.dim() == (per_source ? 2 : 1) &&
                    (!per_source || counts.size(0) == per_source->sources()) &&
                    counts.size(-1) == static_cast<std::int64_t>(weights.size()) && counts.scalar_type() == at::kLong &&
                    counts.is_cpu() && counts.is_contiguous(),
                "counts ", c10::str(counts.sizes()), " for ", weights.size(),
                " groups; they must be int64 on the CPU, one per group (and source), with at "
                "least one group");
  TESSERA_CHECK(x.dim() == 2 && x.size(1) == in && x.size(0) == counts.sum().item<std::int64_t>(), "rows ",
                c10::str(x.sizes()), " for groups of ", counts.sum().item<std::int64_t>(), " rows of ", in);
}

}  // namespace

at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& counts, const Tensors& weights,
                          const c10::intrusive_ptr<SourceGradients>& per_source) {
  check(x, counts, weights, weights.empty() ? 0 : weights[0].size(1), per_source);
  if (!counts.is_cpu())
    return GroupedLinear::apply(x.to(*device_groups_type(x, weights)), counts, at::TensorList(weights), PerSource{});
  const c10::DeviceType device = x.device().type();
  const Half half = libtorch_autocast_type(device);
  const PerSource owned{per_source, per_source ? weights : Tensors()};
  if (!half || fusable({x, weights[0]})) return GroupedLinear::apply(x, counts, at::TensorList(weights), owned);
  const auto narrow = [&](const at::Tensor& t) { return at::autocast::cached_cast(*half, t, device); };
  Tensors narrow_weights;
  for (const at::Tensor& weight : weights) narrow_weights.push_back(narrow(weight));
  return GroupedLinear::apply(narrow(x), counts, at::TensorList(narrow_weights), owned);
}

at::Tensor grouped_mlp(const at::Tensor& x, const at::Tensor& counts, const Tensors& gate, const Tensors& up,
                       const Tensors& down, const c10::intrusive_ptr<SourceGradients>& per_source) {
  TESSERA_CHECK(gate.size() == up.size() && gate.size() == down.size(), gate.size(), ", ", up.size(), " and ",
                down.size(), " matrices for gate, up and down; their numbers must be equal");
  check(x, counts, gate, gate.empty() ? 0 : gate[0].size(1), per_source);
  if (!fusable({x, gate[0], up[0], down[0]})) {
    const at::Tensor g = grouped_linear(x, counts, gate, per_source), u = grouped_linear(x, counts, up, per_source);
    return grouped_linear(at::silu(g) * u, counts, down, per_source);
  }
  Tensors weights = gate;
  weights.insert(weights.end(), up.begin(), up.end());
  weights.insert(weights.end(), down.begin(), down.end());
  return GroupedMlp::apply(x, counts, at::TensorList(weights), PerSource{per_source, per_source ? weights : Tensors()});
}

}  // namespace tessera::nn
