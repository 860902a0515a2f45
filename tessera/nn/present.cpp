#include <tessera/nn/present.h>

#include <tessera/base/error.h>

namespace tessera::nn {
namespace {

PresentHooks& hooks() {
  static PresentHooks set;
  return set;
}

}  // namespace

void set_present_hooks(const PresentHooks& given) { hooks() = given; }

// Tensors get the key only after the hooks were set, so a thread that sees such a tensor sees the hooks.
void Present::enter(std::initializer_list<const at::Tensor*> tensors) {
  TESSERA_CHECK(hooks().enter != nullptr,
                "a fused function received a tensor without memory of its own (deferred construction), and nothing is "
                "there to bring it; materialise it first");
  token_ = hooks().enter(tensors.begin(), tensors.size());
}

void Present::leave() noexcept { hooks().leave(token_); }

}  // namespace tessera::nn
