#include <tessera/parallel/sharding/local_parts.h>

#include <ATen/ATen.h>
#include <tessera/base/error.h>

#include <algorithm>
#include <string_view>

namespace tessera::parallel {
namespace {

/// Operators of aten whose result depends on several elements at once; sorted. (abs is included because maximum norms
/// start with it.)
// clang-format off
constexpr std::string_view mixing_operators[] = {
    "_foreach_max", "_foreach_norm", "abs", "amax", "amin", "aminmax", "argmax", "argmin", "cat", "concat",
    "concatenate", "cumsum", "dot", "frobenius_norm", "hstack", "inner", "linalg_norm", "linalg_vector_norm",
    "logsumexp", "matmul", "max", "mean", "median", "min", "mm", "mv", "norm", "nuclear_norm", "prod", "sort", "stack",
    "std", "std_mean", "sum", "topk", "var", "var_mean", "vdot"};
// clang-format on
static_assert(std::ranges::is_sorted(mixing_operators));

class Refusal final : public Materializer {
 public:
  void enter(std::span<const std::size_t>, bool, const char* op) override {
    std::string_view name = op;
    if (!name.starts_with("aten::")) return;
    name.remove_prefix(6);
    if (std::ranges::binary_search(mixing_operators, name))
      throw Error(concat("sharding: operator ", op,
                         " was given this rank's part of a gradient; it mixes elements, but the other ranks hold the "
                         "other parts, so every rank would get a different number. Clip with "
                         "sharded.clip_grad_norm(), measure with sharded.grad_norm(); an optimizer that mixes elements "
                         "(LBFGS) needs whole gradients: use strategy 'ddp' for it, or sharded.gather_like()"));
  }
  void leave(std::span<const std::size_t>) noexcept override {}
};

}  // namespace

Materializer& refuse_mixing() {
  static Refusal materializer;  // without state
  return materializer;
}

LocalParts::LocalParts(const at::Tensor& memory, Materializer& watcher, std::string gone)
    : storage_(watcher, 0, memory.numel(), memory.scalar_type(), memory.device(), std::move(gone)) {
  storage_.attach(memory);
}

at::Tensor LocalParts::watched(const at::Tensor& part) {
  const at::Tensor& memory = storage_.buffer();
  at::Tensor made = at::empty({0}, at::TensorOptions(memory.scalar_type()).device(memory.device()));
  storage_.adopt(made, part.storage_offset() - memory.storage_offset(), part.sizes(), {1});
  return made;
}

}  // namespace tessera::parallel
