#include <tessera/parallel/sharding/flat_gradient.h>

#include <ATen/ATen.h>
#include <tessera/parallel/sharding/gradient_checks.h>

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

namespace tessera::parallel {

FlatGradient::FlatGradient(std::string name, std::size_t unit, GradientGroups groups, bool fixed_order)
    : name_(std::move(name)), unit_(unit), groups_(std::move(groups)), fixed_order_(fixed_order) {}

bool is_same_memory(const at::Tensor& grad, const at::Tensor& place) {
  return grad.defined() && place.defined() && grad.layout() == at::kStrided && grad.is_alias_of(place) &&
         grad.storage_offset() == place.storage_offset() && grad.sizes() == place.sizes() &&
         grad.strides() == place.strides();
}

at::Tensor FlatGradient::place_of(const at::Tensor& flat, const Member& member) const {
  // Bypasses autograd's view tracking: a tracked view would refuse the detach_() of Optimizer::zero_grad().
  const at::AutoDispatchBelowADInplaceOrView untracked;
  return flat.as_strided(member.sizes, member.strides, flat.storage_offset() + member.offset);
}

bool FlatGradient::add_to_buffer(Member& m, bool check_finite) {
  at::Tensor& grad = m.parameter.mutable_grad();
  const at::Tensor place = place_of(buffer_, m);
  bool finite = true;
  if (m.given)
    place.add_(grad);
  else
    finite = copy_checked(place, grad, check_finite);
  if (groups_.per_source) {
    const std::vector<at::Tensor> gradients = groups_.per_source->take(m.parameter);
    for (std::size_t s = 0; s < later_sources_.size(); ++s) {
      const at::Tensor later = place_of(later_sources_[s], m);
      if (!m.given) later.zero_();
      if (!gradients.empty()) later.add_(gradients[s]);
    }
  }
  m.given = true;
  grad.reset();
  return finite;
}

void FlatGradient::zero_in_buffer(const Member& member) {
  place_of(buffer_, member).zero_();
  for (const at::Tensor& later_source : later_sources_) place_of(later_source, member).zero_();
}

/// Results that have not been reduced yet, or not since zero_grad(), are undefined or outdated.
void FlatGradient::zero_results_without_reduction() {
  for (const Member& m : members_)
    if (!m.reduced) m.result.zero_();
}

void FlatGradient::forget(Member& member) {
  member.shown.mutable_grad().reset();
  member.given = member.reduced = member.hidden = false;
}

void FlatGradient::forget_gradients() {
  for (Member& m : members_) {
    m.parameter.mutable_grad().reset();
    forget(m);
  }
}

}  // namespace tessera::parallel
