// Operators of LibTorch that are given a part of a parameter: somebody's own module calls them.

#include <tessera/parallel/tensor/cut.h>

#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/engine.h>

#include <tessera/base/error.h>
#include <tessera/parallel/sharding/operator_facts.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::parallel {
namespace {

using torch::jit::Stack;

/// Operators of aten that mix the elements of their arguments, sorted: of a part they give other numbers than of the
/// whole. (Elementwise ones, as optimizers use, do not.)
// clang-format off
constexpr std::string_view mixing_operators[] = {
    "_convolution", "addbmm", "addmm", "addmv", "addr", "amax", "amin", "argmax", "argmin", "baddbmm", "bilinear",
    "bmm", "conv1d", "conv2d", "conv3d", "convolution", "cross", "cumsum", "dot", "einsum", "embedding",
    "embedding_bag", "inner", "layer_norm", "linalg_vector_norm", "linear", "log_softmax", "logsumexp", "matmul", "max",
    "mean", "median", "min", "mm", "mv", "native_layer_norm", "norm", "prod", "rms_norm", "softmax", "sort", "std",
    "sum", "tensordot", "topk", "var"};
// clang-format on
static_assert(std::ranges::is_sorted(mixing_operators));

c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, nn::cut_key);
}

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1 && !at::GradMode::is_enabled(); }

const Cut* cut_argument(at::ArrayRef<c10::IValue> values) {
  for (const c10::IValue& value : values)
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().key_set().has(nn::cut_key))
      return cut_of(value.toTensor());
  return nullptr;
}

/// What backward does with saved parts is right: the forward that saved them was ours.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const detail::OperatorFacts& facts = detail::known_facts(op);
  const std::string& full = op.operator_name().name;
  const std::string_view name = full.starts_with("aten::") ? std::string_view(full).substr(6) : std::string_view();
  const bool mixes = name.empty() || std::ranges::binary_search(mixing_operators, name);
  if (mixes && !facts.passes && facts.writes == 0 && !in_backward()) {
    const std::size_t count = op.schema().arguments().size();
    const Cut* const cut = cut_argument(at::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count, count));
    throw InputError(concat(
        "tensor parallelism: operator ", full, " is given ",
        cut != nullptr ? concat("'", cut->name(), "'") : std::string("a view of a parameter"),
        ", of which this rank holds a part: only torch::nn::Linear (linear) and torch::nn::Embedding (embedding) know "
        "what that means; leave the parameter out of the plan, or call linear with the parameter itself"));
  }
  const c10::impl::ExcludeDispatchKeyGuard nested(nn::cut_key);
  op.redispatchBoxed(below(keys), stack);
}

at::Tensor linear(c10::DispatchKeySet keys, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  if (const auto* cut = nn::redirect_of(weight))
    return cut->linear(x, weight, bias.value_or(at::Tensor()), nn::WeightLayout::out_in);
  if (!in_backward())
    throw InputError(
        "tensor parallelism: linear is given a view of a parameter of which this rank holds a part; give "
        "it the parameter itself, or leave it out of the plan");
  return at::_ops::linear::redispatch(below(keys), x, weight, bias);
}

at::Tensor embedding(c10::DispatchKeySet keys, const at::Tensor& weight, const at::Tensor& ids, c10::SymInt padding_idx,
                     bool scale_grad_by_freq, bool sparse) {
  const auto* cut = nn::redirect_of(weight);
  if (cut == nullptr)
    return at::_ops::embedding::redispatch(below(keys), weight, ids, padding_idx, scale_grad_by_freq, sparse);
  if (scale_grad_by_freq || sparse)
    throw InputError(
        "tensor parallelism: an embedding with scale_grad_by_freq or sparse gradients cannot be cut; leave "
        "it out of the plan");
  return cut->embedding(weight, ids, padding_idx.expect_int(), /*whole=*/false);
}

struct Registrations {
  Registrations() {
    auto& dispatcher = c10::Dispatcher::singleton();
    held.push_back(dispatcher.registerFallback(nn::cut_key, c10::KernelFunction::makeFromBoxedFunction<&fallback>(),
                                               "tessera: parameters cut over ranks"));
    add<at::_ops::linear, &linear>();
    add<at::_ops::embedding, &embedding>();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (op && detail::operator_facts(*op).passes && !op->hasKernelForDispatchKey(nn::cut_key))
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
  // Never undone: threads may still run operators while the process ends.
  static const Registrations* const registrations = new Registrations;
  (void)registrations;
}

}  // namespace tessera::parallel
