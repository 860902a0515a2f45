#include <tessera/parallel/dispatch/operator_facts.h>

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace tessera::parallel::detail {
namespace {

/// Operators of aten, without overload names; sorted. They read only sizes, types or autograd state, but have no alias
/// annotation that shows it. _backward is included because its `inputs` are destinations, and the operators of backward
/// must be intercepted one by one.
// clang-format off
constexpr std::string_view metadata_operators[] = {
    "_assert_tensor_metadata", "_backward", "_debug_has_internal_overlap", "_has_compatible_shallow_copy_type",
    "_has_same_storage_numel", "_is_zerotensor", "_shape_as_tensor", "_version", "can_cast", "data", "detach_", "dim",
    "empty_like", "full_like", "get_device", "is_complex", "is_conj", "is_contiguous", "is_distributed",
    "is_floating_point", "is_inference", "is_leaf", "is_neg", "is_same_size", "is_set_to", "is_signed", "new_empty",
    "new_empty_strided", "new_full", "new_ones", "new_zeros", "numel", "ones_like", "output_nr", "rand_like",
    "randint_like", "randn_like", "record_stream", "rename_", "requires_grad_", "result_type", "retain_grad",
    "retains_grad", "set_data", "size", "storage_offset", "stride", "sym_is_contiguous", "sym_numel", "sym_size",
    "sym_storage_offset", "sym_stride", "zeros_like"};
// clang-format on

/// Operators of aten; sorted. They throw when inputs and parameters differ in dtype; all others promote types or accept
/// both.
// clang-format off
constexpr std::string_view one_dtype_operators[] = {
    "_convolution", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "dot", "einsum", "group_norm", "gru",
    "gru_cell", "inner", "layer_norm", "linear", "lstm", "lstm_cell", "matmul", "mm", "mv", "native_group_norm",
    "native_layer_norm", "prelu", "rms_norm", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell", "tensordot",
    "vdot"};
// clang-format on
static_assert(std::ranges::is_sorted(metadata_operators) && std::ranges::is_sorted(one_dtype_operators));

bool holds_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType || type->kind() == c10::TypeKind::AnyType) return true;
  for (const c10::TypePtr& inner : type->containedTypes())
    if (holds_tensors(inner)) return true;
  return false;
}

bool is_write(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace

OperatorFacts operator_facts(const c10::OperatorHandle& op) {
  OperatorFacts facts;
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  bool any_write = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool write = is_write(arguments[i]);
    any_write = any_write || write;
    if (i >= 64) continue;
    const std::uint64_t bit = std::uint64_t{1} << i;
    if (arguments[i].type()->kind() != c10::TypeKind::TensorType && holds_tensors(arguments[i].type()))
      facts.lists |= bit;
    if (write) facts.writes |= bit;
  }
  // Nothing is assumed about other libraries' operators: returning an alias does not imply that no data is read.
  const std::string& full = schema.name();
  if (!full.starts_with("aten::")) return facts;
  const std::string_view name = std::string_view(full).substr(6);
  const bool view = !any_write && std::ranges::any_of(schema.returns(), [](const c10::Argument& value) {
    return value.alias_info() != nullptr;
  });
  const bool out = std::ranges::any_of(arguments, [](const c10::Argument& argument) { return argument.is_out(); });
  facts.passes =
      view || op.hasTag(at::Tag::inplace_view) || (!out && std::ranges::binary_search(metadata_operators, name));
  facts.wants_one_dtype = !any_write && std::ranges::binary_search(one_dtype_operators, name);
  return facts;
}

const OperatorFacts& known_facts(const c10::OperatorHandle& op) {
  // Direct-mapped by the schema's address, which is stable as long as the operator is registered.
  struct Place {
    const c10::FunctionSchema* schema = nullptr;
    OperatorFacts facts;
  };
  static thread_local std::array<Place, 256> places;
  const c10::FunctionSchema* const schema = &op.schema();
  Place& place = places[(reinterpret_cast<std::uintptr_t>(schema) >> 6) * 0x9e3779b97f4a7c15u >> 56];
  if (place.schema != schema) place = {schema, operator_facts(op)};
  return place.facts;
}

}  // namespace tessera::parallel::detail
