#include <tessera/parallel/sharding/whole_gradient.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/text.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/layout/flat.h>
#include <tessera/parallel/sharding/gradient_checks.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::parallel {

WholeGradient::WholeGradient(std::string name, GradientGroups groups, std::vector<Member> members,
                             comm::Reduction reduction, bool fixed_order)
    : FlatGradient(std::move(name), /*unit=*/0, std::move(groups), fixed_order),
      adds_up_(reduction == comm::Reduction::mean ||
               (groups_.all.rank() == 0 && (!groups_.expert_replicas || groups_.expert_replicas.rank() == 0))),
      counts_(2 * members.size()) {
  members_ = std::move(members);
  std::vector<layout::Parameter> described;
  std::vector<std::size_t> order(members_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const Member& m : members_)
    described.push_back({m.name, m.sizes, static_cast<std::int64_t>(m.parameter.element_size())});
  const layout::FlatLayout flat = layout::make_flat_layout(described, order, 1);
  const auto options = at::TensorOptions(members_.front().dtype).device(members_.front().device);
  const auto with_counters = flat.padded + static_cast<std::int64_t>(counts_.size());
  const comm::Group& widest =
      groups_.all.size() == 1 && groups_.expert_replicas ? groups_.expert_replicas : groups_.all;
  buffer_ = comm::zeros_shared(widest, {with_counters}, options);
  sum_ = fixed_order_ ? comm::zeros_shared(widest, {with_counters}, options) : buffer_;
  if (groups_.per_source)  // their counters stay 0, because those of the first source apply to all
    for (std::int64_t s = 1; s < groups_.per_source->sources(); ++s)
      later_sources_.push_back(comm::zeros_shared(widest, {with_counters}, options));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& m = members_[i];
    m.offset = flat.segments[i].offset;
    m.numel = flat.segments[i].numel;
    segments_.push_back({m.sizes, m.offset, m.numel});
    // Gradients have the parameters' memory order if that is dense (channels-last weights), like autograd's.
    if (!m.parameter.is_non_overlapping_and_dense())
      m.strides = buffer_.narrow(0, m.offset, m.numel).view(m.sizes).strides().vec();
    const at::Tensor place = place_of(sum_, m);
    if (m.result.defined()) {
      place.copy_(m.result);
      m.shown.mutable_grad() = place;
    }
    m.result = place;
  }
}

/// Whether the buffer holds reduced gradients of the member, which this rank contributes again: autograd adds to them
/// in place.
bool WholeGradient::holds_reduced(const Member& member) const { return !fixed_order_ && member.reduced && adds_up_; }

void WholeGradient::begin_backward() {
  for (Member& m : members_) {
    at::Tensor& grad = m.shown.mutable_grad();
    const bool mine = is_same_memory(grad, m.result);
    if (!fixed_order_) {
      if (!mine)
        m.given = m.reduced = false;         // removed by zero_grad(), or set by the user: prepare_reduction() takes it
      if (adds_up_ || !m.reduced) continue;  // autograd may add to the existing gradient
    } else if (grad.defined() && !mine) {    // set by the user: as in one process, later gradients are added to it
      check_gradient(m.name, grad, m.result.scalar_type(), m.result.device(), m.result.sizes());
      m.result.copy_(grad);
    }
    m.reduced = grad.defined();
    if (!m.reduced) continue;
    m.hidden = true;
    grad.reset();
  }
}

bool WholeGradient::take_gradient(std::size_t i, bool check_finite) {
  Member& m = members_[i];
  if (fixed_order_) {
    m.hidden = m.reduced;
    return add_to_buffer(m, check_finite);
  }
  at::Tensor& grad = m.parameter.mutable_grad();
  bool finite = true;
  if (!is_same_memory(grad, m.result)) {  // otherwise autograd has added to it in place
    if (m.given || holds_reduced(m))
      m.result.add_(grad);
    else
      finite = copy_checked(m.result, grad, check_finite);
  }
  m.given = true;
  m.reduced = m.hidden = false;
  grad = m.result;
  return finite;
}

GradientMessage WholeGradient::prepare_reduction() {
  for (Member& m : members_) {
    if (m.given || holds_reduced(m)) continue;
    const at::Tensor& grad = m.parameter.grad();
    if (!fixed_order_ && grad.defined() && !is_same_memory(grad, m.result)) {  // set by the user
      check_gradient(m.name, grad, m.dtype, m.device, m.sizes);
      m.result.copy_(grad);
      m.given = true;
    } else {
      zero_in_buffer(m);
    }
  }
  if (fixed_order_) zero_results_without_reduction();
  std::vector<float> counters;
  for (const bool given : {true, false})
    for (const Member& m : members_) counters.push_back(m.given == given);
  const auto count = static_cast<std::int64_t>(counters.size());
  buffer_.narrow(0, buffer_.numel() - count, count).copy_(at::tensor(counters));
  if (fixed_order_) sum_.narrow(0, sum_.numel() - count, count).zero_();
  const at::Tensor flat = buffer_.narrow(0, 0, buffer_.numel() - count);
  // The compression key is not the bucket's number, since buckets differ between the first order and the learnt one.
  return {.key = concat(members_.front().name, " and ", members_.size() - 1, " more, ", flat.numel(), " elements"),
          .tag = concat("gradients, ", name_),
          .flat = flat,
          .message = buffer_,
          .result = {},
          .sum = sum_,
          .later_sources = later_sources_,
          .segments = &segments_};
}

void WholeGradient::finish_reduction() {
  const auto count = static_cast<std::int64_t>(counts_.size());
  const at::Tensor counters = sum_.narrow(0, sum_.numel() - count, count).to(at::kCPU, at::kFloat);
  std::copy_n(counters.const_data_ptr<float>(), counts_.size(), counts_.begin());
}

std::pair<bool, bool> WholeGradient::used_and_missed(std::size_t m) const {
  return {counts_[m] > 0, counts_[members_.size() + m] > 0};
}

void WholeGradient::show(std::size_t i, bool used) {
  if (!used) return;
  Member& m = members_[i];
  m.reduced = true;
  m.hidden = false;
  m.shown.mutable_grad() = m.result;
}

void WholeGradient::end_backward(bool was_reduced) {
  for (Member& m : members_) {
    if (was_reduced) m.given = false;
    if (std::exchange(m.hidden, false)) m.shown.mutable_grad() = m.result;
  }
}

void WholeGradient::abort_backward() noexcept {
  forget_gradients();
  if (groups_.per_source) groups_.per_source->clear();
}

std::vector<FlatGradient::Member> WholeGradient::release_members() {
  for (Member& m : members_)
    if (!is_same_memory(m.shown.grad(), m.result)) {
      m.given = m.reduced = false;
      m.result.reset();
    }
  return std::move(members_);
}

std::vector<std::unique_ptr<WholeGradient>> whole_gradients(const GradientGroups& groups,
                                                            const std::vector<bool>& shared,
                                                            std::vector<FlatGradient::Member> members,
                                                            const std::vector<std::vector<std::size_t>>& lists,
                                                            comm::Reduction reduction, bool fixed_order) {
  const at::NoGradGuard no_grad;
  std::vector<std::unique_ptr<WholeGradient>> made;
  for (const std::vector<std::size_t>& list : lists) {
    std::vector<FlatGradient::Member> chosen;
    for (const std::size_t i : list) chosen.push_back(std::move(members[i]));
    GradientGroups own = groups;
    if (!shared.empty() && shared[list.front()])
      own.per_source = nullptr;
    else
      own.expert_replicas = {};
    made.push_back(std::make_unique<WholeGradient>(concat("bucket ", made.size()), std::move(own), std::move(chosen),
                                                   reduction, fixed_order));
  }
  return made;
}

}  // namespace tessera::parallel
