#include <tessera/parallel/sharding/moved_gradients.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>

#include <algorithm>

namespace tessera::parallel {
namespace {

constexpr const char* where_they_are =
    "the gradients of a sharded module are not in its own parameters: each rank has its part of them in "
    "sharded.parameters(); pass those to optimizers, clip with sharded.clip_grad_norm(), and reset gradients with "
    "zero_grad(), not zero_grad(false)";

/// Refuses every use.
class RefusalOfGradients final : public Materializer {
 public:
  void enter(std::span<const std::size_t>, bool, const char* op) override {
    throw Error(concat("sharding: operator ", op, " was given a placeholder of a gradient: ", where_they_are));
  }
  void leave(std::span<const std::size_t>) noexcept override {}
};

Materializer& refusal_of_gradients() {
  static RefusalOfGradients materializer;  // without state
  return materializer;
}

}  // namespace

MovedGradients::MovedGradients(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)), placed_(parameters_.size()) {
  if (parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  std::int64_t longest = 0;
  for (const at::Tensor& p : parameters_) longest = std::max(longest, p.numel());
  const at::Tensor& first = parameters_.front();
  storage_ = std::make_unique<ManagedStorage>(refusal_of_gradients(), 0, longest, first.scalar_type(), first.device(),
                                              where_they_are);
  for (const at::Tensor& p : parameters_) {
    placeholders_.push_back(at::empty({0}, at::TensorOptions(first.scalar_type()).device(first.device())));
    storage_->adopt(placeholders_.back(), 0, p.sizes(), p.strides());
  }
}

MovedGradients::~MovedGradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) (void)take(i);
}

void MovedGradients::put(std::size_t i) {
  parameters_[i].mutable_grad() = placeholders_[i];
  placed_[i] = true;
}

MovedGradients::Found MovedGradients::take(std::size_t i) {
  if (!placed_[i]) return Found::none;
  placed_[i] = false;
  at::Tensor& grad = parameters_[i].mutable_grad();
  if (!grad.defined()) return Found::gone;
  if (grad.is_same(placeholders_[i])) grad.reset();
  return Found::here;
}

}  // namespace tessera::parallel
