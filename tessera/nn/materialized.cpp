#include <tessera/nn/materialized.h>

#include <tessera/base/error.h>

namespace tessera::nn {
namespace {

MaterializeHooks& hooks() {
  static MaterializeHooks set;
  return set;
}

}  // namespace

void set_materialize_hooks(const MaterializeHooks& given) { hooks() = given; }

// Tensors get the key only after the hooks are set, so a thread that sees such a tensor also sees the hooks.
void Materialized::enter(const at::Tensor* const* tensors, std::size_t count) {
  TESSERA_CHECK(hooks().enter != nullptr,
                "a fused function received a tensor without memory (deferred construction), and no engine is "
                "installed to provide it; materialise the tensor first");
  token_ = hooks().enter(tensors, count);
}

void Materialized::leave() noexcept { hooks().leave(token_); }

}  // namespace tessera::nn
