#include <tessera/optim/offloaded.h>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>

namespace tessera::optim {
namespace {

class Offloaded final : public Optimizer {
 public:
  Offloaded(std::vector<Slot> slots, const MakeOptimizer& make) {
    for (Slot& slot : slots) {
      Copy copy{.device = slot.parameter, .host = {}, .gradient = {}};
      copy.host = at::empty(copy.device.sizes(), pinned(copy.device));
      copies_.push_back(copy);
      slot.parameter = copy.host;
    }
    inner_ = make(std::move(slots));
  }

  void step(double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    for (Copy& copy : copies_) {
      const at::Tensor gradient = copy.device.grad();
      copy.host.mutable_grad() = gradient.defined() ? copy.take_gradient(gradient) : at::Tensor();
      if (copy.version != copy.device._version()) copy.host.copy_(copy.device, /*non_blocking=*/true);
    }
    // At this point the previous step's copies to the device are also complete.
    wait_for(copies_.front().device.device());
    inner_->step(learning_rate, gradient_scale);
    for (Copy& copy : copies_) {
      if (copy.host.grad().defined()) copy.device.copy_(copy.host, /*non_blocking=*/true);
    }
    for (Copy& copy : copies_) copy.version = copy.device._version();  // pieces of one shard share a counter
  }

  void set_learning_rate_scales(const std::vector<double>& scales) override {
    inner_->set_learning_rate_scales(scales);
  }
  std::vector<std::pair<std::string, at::Tensor>> state() const override { return inner_->state(); }
  std::vector<EncodedState> encoded_states() const override { return inner_->encoded_states(); }
  bool is_replicated(const std::string& state_name) const override { return inner_->is_replicated(state_name); }
  std::int64_t steps() const override { return inner_->steps(); }
  void set_steps(std::int64_t steps) override { inner_->set_steps(steps); }
  bool set_betas(const Betas& betas) override { return inner_->set_betas(betas); }

 private:
  struct Copy {
    at::Tensor device, host;    // the parameter
    at::Tensor gradient;        // pinned; undefined before the first gradient
    std::int64_t version = -1;  // version of `device` when both were last equal

    at::Tensor take_gradient(const at::Tensor& from) {
      if (!gradient.defined()) gradient = at::empty(from.sizes(), pinned(from));
      return gradient.copy_(from, /*non_blocking=*/true);
    }
  };

  static at::TensorOptions pinned(const at::Tensor& like) {
    return at::TensorOptions(like.scalar_type()).pinned_memory(true);
  }

  static void wait_for(c10::Device device) {
    c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
  }

  std::vector<Copy> copies_;  // per slot
  std::unique_ptr<Optimizer> inner_;
};

}  // namespace

std::unique_ptr<Optimizer> make_offloaded(std::vector<Slot> slots, const MakeOptimizer& make) {
  return std::make_unique<Offloaded>(std::move(slots), make);
}

}  // namespace tessera::optim
