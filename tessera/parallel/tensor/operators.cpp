// LibTorch operators on a part of a parameter, as called by a user's own module.

#include <tessera/parallel/tensor/tensor_shard.h>

#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/engine.h>

#include <tessera/base/error.h>
#include <tessera/parallel/dispatch/operator_facts.h>
#include <tessera/parallel/recompute/checkpoint_environment.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::parallel {
namespace {

using torch::jit::Stack;

/// Non-elementwise aten operators that treat a part like the whole, sorted: they copy, or set all elements alike. Any
/// other operator that reads the data of a part would give different numbers than for the whole.
// clang-format off
constexpr std::string_view alike_operators[] = {
    "_to_copy", "clone", "contiguous", "copy", "copy_", "equal", "fill_", "resize_", "set_", "to", "zero_"};
// clang-format on
static_assert(std::ranges::is_sorted(alike_operators));

/// Metadata of a parameter's transpose, with which torch::nn::Linear computes a product.
struct Transposed final : c10::BackendMeta {
  explicit Transposed(at::Tensor parameter_) : parameter(std::move(parameter_)) {}
  at::Tensor parameter;
};

c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, nn::cut_key);
}

/// Operators on saved parts in backward are correct: the forward that saved them was ours.
bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1 && !at::GradMode::is_enabled() && !in_recomputation();
}

bool is_part(const at::Tensor& tensor) { return tensor.defined() && tensor.key_set().has(nn::cut_key); }

std::string described(const at::Tensor& part) {
  const TensorShard* cut = cut_of(part);
  if (cut == nullptr) {
    const auto* const transposed = dynamic_cast<const Transposed*>(part.unsafeGetTensorImpl()->get_backend_meta());
    if (transposed != nullptr) cut = cut_of(transposed->parameter);
  }
  return cut != nullptr ? cut->described() : "a view of a parameter that tensor parallelism has cut";
}

[[noreturn]] void refuse(std::string_view op, const at::Tensor& part) {
  throw InputError(concat(
      "tensor parallelism: operator ", op, " was given ", described(part),
      ", or a value computed from it (such as its gradient): this rank holds only a part, so the result would differ "
      "from that of the whole. Only linear maps (x W^T, x W) and embedding can use a part; remove the parameter from "
      "the plan, use gather_tensor_parts() for its values, or Sharded::grad_norm and clip_grad_norm for norms"));
}

/// The first part among the arguments, or undefined.
at::Tensor part_among(at::ArrayRef<c10::IValue> values) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && is_part(value.toTensor())) return value.toTensor();
    if (!value.isList()) continue;
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor() && is_part(element.toTensor())) return element.toTensor();
  }
  return {};
}

/// Whether an optimizer's operator on lists of tensors works element by element; norms and maxima do not.
bool elementwise_on_lists(std::string_view name) {
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  return (name.starts_with("_foreach_") && !has("norm") && !has("powsum") && name != "_foreach_max") ||
         name.starts_with("_fused_ada") || name.starts_with("_fused_sgd");
}

/// The first argument, if it is a list of tensors.
std::vector<at::Tensor> first_list(at::ArrayRef<c10::IValue> arguments) {
  return !arguments.empty() && arguments[0].isTensorList() ? arguments[0].toTensorVector() : std::vector<at::Tensor>();
}

/// Whether every tensor among the arguments is a part or a scalar (0-D).
bool all_parts(at::ArrayRef<c10::IValue> arguments) {
  return std::ranges::all_of(arguments, [](const c10::IValue& value) {
    return !value.isTensor() || !value.toTensor().defined() || is_part(value.toTensor()) || value.toTensor().dim() == 0;
  });
}

/// Marks a copy of a part, or an elementwise result of one, as a part.
void pass_on(const c10::IValue& result, const at::Tensor& part) {
  if (!result.isTensor()) return;
  const at::Tensor& tensor = result.toTensor();
  if (!tensor.defined() || is_part(tensor) || !tensor.is_floating_point() || tensor.sizes() != part.sizes()) return;
  mark_cut(tensor, part.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const detail::OperatorFacts& facts = detail::known_facts(op);
  const std::string& full = op.operator_name().name;
  const bool draws = op.hasTag(at::Tag::nondeterministic_seeded);
  if ((facts.passes && !draws) || in_backward()) {
    const c10::impl::ExcludeDispatchKeyGuard nested(nn::cut_key);
    return op.redispatchBoxed(below(keys), stack);
  }
  const std::string_view name = full.starts_with("aten::") ? std::string_view(full).substr(6) : std::string_view();
  const bool elementwise = op.hasTag(at::Tag::pointwise) || elementwise_on_lists(name);
  const std::size_t count = op.schema().arguments().size();
  const auto arguments = at::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count, count);
  const at::Tensor part = part_among(arguments);
  const std::vector<at::Tensor> list = first_list(arguments);
  const bool only_parts = all_parts(arguments);
  if (!elementwise && !std::ranges::binary_search(alike_operators, name) && part.defined()) {
    if (draws)
      throw InputError(concat("tensor parallelism: ", full, " would draw different values into ", described(part),
                              " than into the whole: initialise the module before TensorParallel cuts it"));
    refuse(full, part);
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard nested(nn::cut_key);
    op.redispatchBoxed(below(keys), stack);
  }
  if (facts.writes != 0 || stack->empty() || !part.defined()) return;
  // For a bias, only results computed from parts alone are parts, not the tensor that it is added to.
  if (part.dim() > 1 || !elementwise || only_parts) pass_on(stack->back(), part);
  if (!stack->back().isTensorList()) return;
  const std::vector<at::Tensor> results = stack->back().toTensorVector();
  for (std::size_t i = 0; i < results.size() && i < list.size(); ++i)
    if (is_part(list[i])) pass_on(results[i], list[i]);
}

/// Checks that `parameter` may be used in place of the cut parameter: it must be the module's own, or a copy that is
/// not trained.
void check_use(const at::Tensor& parameter, const TensorShard& cut) {
  if (parameter.sizes() != at::IntArrayRef(cut.part().shape()))
    throw InputError(concat("tensor parallelism: ", cut.described(), " was replaced by ", c10::str(parameter.sizes()),
                            " (torch::load(), set_data()), but this rank's part is ",
                            c10::str(at::IntArrayRef(cut.part().shape())),
                            ": restore() the module before changing it, then cut it again"));
  if (parameter.is_leaf() && parameter.requires_grad() && at::GradMode::is_enabled() &&
      parameter.unsafeGetTensorImpl() != cut.parameter)
    throw InputError(concat("tensor parallelism: a copy of ", cut.described(),
                            " is trained (clone() of the module, or of the parameter), but its gradients would not be "
                            "combined: clone the module before it is cut, then cut the clone; without gradients "
                            "(evaluation, averages of weights) copies may be used"));
}

/// The cut that applies to a product with second factor `w`; nullptr if backward computes the product.
const TensorShard* cut_of_factor(std::string_view op, const at::Tensor& x, const at::Tensor& w, at::Tensor& parameter,
                                 nn::WeightLayout& layout) {
  if (in_backward()) return nullptr;
  if (is_part(x)) refuse(op, x);
  parameter = w;
  layout = nn::WeightLayout::in_out;
  if (const auto* transposed = dynamic_cast<const Transposed*>(w.unsafeGetTensorImpl()->get_backend_meta())) {
    parameter = transposed->parameter;
    layout = nn::WeightLayout::out_in;
  }
  const TensorShard* const cut = cut_of(parameter);
  if (cut == nullptr || parameter.dim() != 2) refuse(op, w);
  check_use(parameter, *cut);
  return cut;
}

at::Tensor linear(c10::DispatchKeySet keys, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  at::Tensor parameter;
  nn::WeightLayout layout;
  const TensorShard* const cut =
      is_part(weight) ? cut_of_factor("aten::linear", x, weight, parameter, layout) : nullptr;
  if (cut == nullptr) {
    if (is_part(x) && !in_backward()) refuse("aten::linear", x);
    const c10::impl::ExcludeDispatchKeyGuard nested(nn::cut_key);
    return at::_ops::linear::redispatch(below(keys), x, weight, bias);
  }
  // x W^T, where W is the transpose of the parameter itself if the caller transposed it.
  layout = layout == nn::WeightLayout::in_out ? nn::WeightLayout::out_in : nn::WeightLayout::in_out;
  return cut->linear(x, parameter, bias.value_or(at::Tensor()), layout);
}

template <class Op>
at::Tensor product(c10::DispatchKeySet keys, const at::Tensor& x, const at::Tensor& w) {
  at::Tensor parameter;
  nn::WeightLayout layout;
  if (const TensorShard* const cut = is_part(w) ? cut_of_factor(Op::name, x, w, parameter, layout) : nullptr)
    return cut->linear(x, parameter, {}, layout);
  if (is_part(x) && !in_backward()) refuse(Op::name, x);
  const c10::impl::ExcludeDispatchKeyGuard nested(nn::cut_key);
  return Op::redispatch(below(keys), x, w);
}

at::Tensor addmm(c10::DispatchKeySet keys, const at::Tensor& bias, const at::Tensor& x, const at::Tensor& w,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  at::Tensor parameter;
  nn::WeightLayout layout;
  if (const TensorShard* const cut = is_part(w) ? cut_of_factor("aten::addmm", x, w, parameter, layout) : nullptr) {
    if (bias.dim() == 1 && beta.equal(1) && alpha.equal(1)) return cut->linear(x, parameter, bias, layout);
    const at::Tensor y = cut->linear(x, parameter, {}, layout);
    return y * alpha + bias * beta;
  }
  if (is_part(x) && !in_backward()) refuse("aten::addmm", x);
  const c10::impl::ExcludeDispatchKeyGuard nested(nn::cut_key);
  return at::_ops::addmm::redispatch(below(keys), bias, x, w, beta, alpha);
}

template <class Op, class... More>
at::Tensor transposed(c10::DispatchKeySet keys, const at::Tensor& w, More... more) {
  const c10::impl::ExcludeDispatchKeyGuard nested(nn::cut_key);
  const at::Tensor view = Op::redispatch(below(keys), w, more...);
  if (w.dim() == 2 && !in_backward() && cut_of(w) != nullptr && view.sizes() == at::IntArrayRef({w.size(1), w.size(0)}))
    mark_cut(view, c10::make_intrusive<Transposed>(w));
  return view;
}

at::Tensor transposed_t(c10::DispatchKeySet keys, const at::Tensor& w) { return transposed<at::_ops::t>(keys, w); }
at::Tensor transposed_int(c10::DispatchKeySet keys, const at::Tensor& w, std::int64_t a, std::int64_t b) {
  if (w.dim() == 2 && (a - b) % 2 == 0) {  // swaps a dimension with itself, which changes nothing
    const c10::impl::ExcludeDispatchKeyGuard nested(nn::cut_key);
    return at::_ops::transpose_int::redispatch(below(keys), w, a, b);
  }
  return transposed<at::_ops::transpose_int>(keys, w, a, b);
}

at::Tensor embedding(c10::DispatchKeySet keys, const at::Tensor& weight, const at::Tensor& ids, c10::SymInt padding_idx,
                     bool scale_grad_by_freq, bool sparse) {
  const TensorShard* const cut = is_part(weight) && !in_backward() ? cut_of(weight) : nullptr;
  if (cut == nullptr) {
    if (is_part(weight) && !in_backward()) refuse("aten::embedding", weight);
    return at::_ops::embedding::redispatch(below(keys), weight, ids, padding_idx, scale_grad_by_freq, sparse);
  }
  check_use(weight, *cut);
  if (scale_grad_by_freq || sparse)
    throw InputError(
        concat("tensor parallelism: an embedding with scale_grad_by_freq or sparse gradients cannot be cut (",
               described(weight), "); remove it from the plan"));
  return cut->embedding(weight, ids, padding_idx.expect_int(), /*whole=*/false);
}

struct Registrations {
  Registrations() {
    auto& dispatcher = c10::Dispatcher::singleton();
    held.push_back(dispatcher.registerFallback(nn::cut_key, c10::KernelFunction::makeFromBoxedFunction<&fallback>(),
                                               "tessera: parameters cut over ranks"));
    add<at::_ops::linear, &linear>();
    add<at::_ops::matmul, &product<at::_ops::matmul>>();
    add<at::_ops::mm, &product<at::_ops::mm>>();
    add<at::_ops::addmm, &addmm>();
    add<at::_ops::t, &transposed_t>();
    add<at::_ops::transpose_int, &transposed_int>();
    add<at::_ops::embedding, &embedding>();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (op && detail::operator_facts(*op).passes && !op->hasTag(at::Tag::nondeterministic_seeded) &&
          !op->hasKernelForDispatchKey(nn::cut_key))
        held.push_back(dispatcher.registerImpl(name, nn::cut_key, c10::KernelFunction::makeFallthrough(), std::nullopt,
                                               nullptr, "tessera: reads no data of cut parameters"));
    }
  }

  template <class Op, auto* function>
  void add() {
    held.push_back(c10::Dispatcher::singleton().registerImpl(
        {Op::name, Op::overload_name}, nn::cut_key, c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(function)),
        c10::impl::CppSignature::make<typename Op::schema>(), nullptr, "tessera: parameters cut over ranks"));
  }

  std::vector<c10::RegistrationHandleRAII> held;
};

}  // namespace

void register_cut_operators() {
  // Never undone: threads may still run operators while the process exits.
  static const Registrations* const registrations = new Registrations;
  (void)registrations;
}

}  // namespace tessera::parallel
