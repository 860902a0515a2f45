#include <tessera/parallel/autograd/saved_tensors.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <tessera/base/error.h>
#include <tessera/parallel/dispatch/managed.h>

#include <algorithm>
#include <utility>

namespace tessera::parallel {
namespace {

/// The policies of this thread, outermost first; those from `visible` on are hidden while one of them packs.
struct Stack final : SavedTensorSource {
  std::vector<std::shared_ptr<SavedTensorPolicy>> policies;
  std::size_t visible = 0;

  std::unique_ptr<SavedTensorSlot> next() override;
};

Stack& stack() {
  static thread_local Stack instance;
  return instance;
}

/// Limits the policies to the first `visible` while it exists.
class Visible {
 public:
  explicit Visible(std::size_t visible) : former_(std::exchange(stack().visible, visible)) {}
  ~Visible() { stack().visible = former_; }
  Visible(const Visible&) = delete;
  Visible& operator=(const Visible&) = delete;

 private:
  std::size_t former_;
};

class Slot final : public SavedTensorSlot {
 public:
  void pack(const at::Tensor& saved) override {
    if (is_parameter(saved)) {
      kept_ = Versioned(saved.is_leaf() ? saved : saved.detach());
      return;
    }
    const at::NoGradGuard no_grad;
    const at::Tensor plain = saved.detach();
    // A policy may itself end scopes or throw, so each one is held while it packs.
    for (std::size_t level = stack().visible; level-- > 0;) {
      const std::shared_ptr<SavedTensorPolicy> policy = stack().policies[level];
      const Visible outer(level);
      packed_ = policy->pack(plain);
      if (packed_) return;
    }
    kept_ = Versioned(plain);
  }

  at::Tensor unpack() override {
    if (!packed_) return kept_.get();
    const at::NoGradGuard no_grad;
    return packed_->unpack();
  }

 private:
  std::unique_ptr<PackedTensor> packed_;
  Versioned kept_;
};

std::unique_ptr<SavedTensorSlot> Stack::next() { return visible == 0 ? nullptr : std::make_unique<Slot>(); }

}  // namespace

SavedTensors::SavedTensors(std::shared_ptr<SavedTensorPolicy> policy) : policy_(std::move(policy)) {
  TESSERA_CHECK(policy_, "a scope of saved tensors without a policy");
  Stack& mine = stack();
  TESSERA_CHECK(mine.visible == mine.policies.size(), "a policy opened a scope of saved tensors while it packed");
  mine.policies.reserve(mine.policies.size() + 1);
  exchange_saved_tensor_source(&mine);
  mine.policies.push_back(policy_);
  mine.visible = mine.policies.size();
}

SavedTensors::~SavedTensors() {
  Stack& mine = stack();
  const auto place = std::find(mine.policies.rbegin(), mine.policies.rend(), policy_);
  if (place == mine.policies.rend()) return;  // destroyed on another thread, whose stack must not be touched
  mine.policies.erase(std::next(place).base());
  mine.visible = std::min(mine.visible, mine.policies.size());
  if (mine.policies.empty()) exchange_saved_tensor_source(nullptr);
}

bool is_parameter(const at::Tensor& tensor) {
  if (tensor.key_set().has(managed_key)) return true;
  const at::Tensor owner = tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
  return owner.is_leaf() && owner.requires_grad();
}

Versioned::Versioned(at::Tensor tensor)
    : tensor_(std::move(tensor)), version_(tensor_.unsafeGetTensorImpl()->version_counter().current_version()) {}

const at::Tensor& Versioned::get() const {
  const std::uint32_t now = tensor_.unsafeGetTensorImpl()->version_counter().current_version();
  if (now != version_)
    throw Error(
        concat("one of the variables needed for gradient computation has been modified by an inplace operation: [",
               tensor_.toString(), " [", c10::Join(", ", tensor_.sizes()), "]] is at version ", now,
               "; expected version ", version_, " instead; write the result of that operation into a new tensor"));
  return tensor_;
}

}  // namespace tessera::parallel
