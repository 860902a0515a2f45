#include <tessera/parallel/sharding/flat_gradient.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/parallel/sharding/gradient_checks.h>

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <numeric>

namespace tessera::parallel {
namespace {

/// optimizer.zero_grad(false) replaces grad() by a detached alias: the same memory is what counts.
bool holds(const at::Tensor& grad, const at::Tensor& place) {
  return grad.defined() && place.defined() && grad.layout() == at::kStrided && grad.is_alias_of(place) &&
         grad.storage_offset() == place.storage_offset() && grad.sizes() == place.sizes() &&
         grad.strides() == place.strides();
}

at::ScalarType wire_dtype(const FlatGroup& group, std::optional<at::ScalarType> reduce_dtype) {
  if (group.dtype() == at::kDouble || !at::isFloatingType(group.dtype())) return group.dtype();
  return reduce_dtype.value_or(at::kFloat);
}

}  // namespace

FlatGradient::FlatGradient(std::string name, GradientGroups groups, std::vector<Member> members,
                           comm::Reduction reduction, bool fixed_order)
    : name_(std::move(name)),
      groups_(std::move(groups)),
      members_(std::move(members)),
      fixed_order_(fixed_order),
      in_place_(!fixed_order),
      adds_up_(reduction == comm::Reduction::mean ||
               (groups_.all.rank() == 0 && (!groups_.expert_replicas || groups_.expert_replicas.rank() == 0))),
      counts_(2 * members_.size()) {
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
  sum_ = in_place_ ? buffer_ : comm::zeros_shared(widest, {with_counters}, options);
  if (groups_.per_source)  // their counters stay 0: the first of these counts for all
    for (std::int64_t s = 1; s < groups_.per_source->sources(); ++s)
      later_sources_.push_back(comm::zeros_shared(widest, {with_counters}, options));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& m = members_[i];
    m.offset = flat.segments[i].offset;
    m.numel = flat.segments[i].numel;
    segments_.push_back({m.sizes, m.offset, m.numel});
    // Gradients have the parameters' order in memory where that is dense (channels-last weights), as autograd's have.
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

FlatGradient::FlatGradient(ShardingContext& context, FlatGroup& group, std::optional<at::ScalarType> reduce_dtype,
                           bool fixed_order, std::size_t first_index)
    : name_(concat("unit '", group.name(), "'")),
      groups_{.all = context.data_parallel,
              .shards = context.shards,
              .replicas = context.replicas,
              .expert_replicas = group.shared_by_experts() ? context.expert_replicas : comm::Group(),
              .per_source = group.shared_by_experts() ? nullptr : context.per_source},
      fixed_order_(fixed_order),
      context_(&context),
      group_(&group),
      wire_dtype_(wire_dtype(group, reduce_dtype)) {
  std::vector<at::Tensor> parameters;
  for (const FlatGroup::Member& m : group.members()) {
    members_.push_back({.name = m.name,
                        .parameter = m.parameter,
                        .index = first_index + members_.size(),
                        .shown = m.local,
                        .offset = m.offset,
                        .numel = m.numel});
    segments_.push_back({m.sizes, m.offset, m.numel});
    parameters.push_back(m.parameter);
  }
  signs_ = std::make_unique<MovedGradients>(std::move(parameters));
  if (!group.root()) context.pool.announce(group.flat_layout().padded, wire_dtype_, BufferUse::gradients);
}

at::Tensor FlatGradient::place_of(const at::Tensor& flat, const Member& member) const {
  // Below autograd's view tracking: a tracked view would refuse the detach_() of Optimizer::zero_grad().
  const at::AutoDispatchBelowADInplaceOrView untracked;
  return flat.as_strided(member.sizes, member.strides, flat.storage_offset() + member.offset);
}

void FlatGradient::forget(Member& member) {
  member.shown.mutable_grad().reset();
  member.given = member.reduced = member.hidden = false;
}

void FlatGradient::begin() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& m = members_[i];
    at::Tensor& grad = m.shown.mutable_grad();
    if (!whole()) {
      const MovedGradients::Found sign = signs_->take(i);
      m.hidden = sign == MovedGradients::Found::here;
      if (sign == MovedGradients::Found::gone) forget(m);  // the module's own zero_grad()
    }
    const bool mine = holds(grad, m.result);
    if (in_place_) {
      if (!mine) m.given = m.reduced = false;  // zero_grad(), or a gradient of the user's own, which close() takes
      if (adds_up_ || !m.reduced) continue;    // autograd may add to what is there
    } else if (grad.defined() && !mine) {      // the user's own: as one process would, the next ones are added to it
      prepare_sum();
      check_gradient(m.name, grad, m.result.scalar_type(), m.result.device(), m.result.sizes());
      m.result.copy_(grad);
      if (!whole()) grad = m.result;
    }
    m.reduced = grad.defined();
    if (!whole() || !m.reduced) continue;
    m.hidden = true;
    grad.reset();
  }
}

void FlatGradient::take_buffer() {
  if (buffer_.defined()) return;
  const auto taken = [this] {
    return context_->pool.take(group_->flat_layout().padded, wire_dtype_, BufferUse::gradients);
  };
  buffer_ = taken();
  if (groups_.per_source)
    for (std::int64_t s = 1; s < groups_.per_source->sources(); ++s) later_sources_.push_back(taken());
}

void FlatGradient::give_buffers() {
  context_->pool.give(std::move(buffer_), BufferUse::gradients);
  buffer_.reset();
  for (at::Tensor& later_source : later_sources_) context_->pool.give(std::move(later_source), BufferUse::gradients);
  later_sources_.clear();
}

void FlatGradient::take_later_sources(const Member& member) {
  const std::vector<at::Tensor> gradients = groups_.per_source->take(member.parameter);
  for (std::size_t s = 0; s < later_sources_.size(); ++s) {
    const at::Tensor place = place_of(later_sources_[s], member);
    if (!member.given) place.zero_();
    if (!gradients.empty()) place.add_(gradients[s]);
  }
}

bool FlatGradient::take(std::size_t i, bool check_finite) {
  Member& m = members_[i];
  at::Tensor& grad = m.parameter.mutable_grad();
  take_buffer();
  bool finite = true;
  if (!in_place_ || !holds(grad, m.result)) {  // else autograd has added to it
    const at::Tensor place = in_place_ ? m.result : place_of(buffer_, m);
    if (m.given || (in_place_ && m.reduced && adds_up_))
      place.add_(grad);
    else
      finite = copy_checked(place, grad, check_finite);
  }
  if (groups_.per_source) take_later_sources(m);  // before `given` is changed
  m.given = true;
  if (in_place_) {
    m.reduced = m.hidden = false;
    grad = m.result;
  } else {
    m.hidden = !whole() || m.reduced;
    grad.reset();
  }
  return finite;
}

/// Memory for the sums, zero where nothing counts yet.
void FlatGradient::prepare_sum() {
  if (!sum_.defined()) {
    sum_ = comm::zeros_shared(context_->shards, {group_->flat_layout().shard_numel()},
                              at::TensorOptions(group_->shard_dtype()).device(group_->shard().device()));
    if (context_->shards.size() > 1)
      locals_ = std::make_unique<LocalParts>(
          sum_, refuse_mixing(),
          "this gradient is gone: the backward that made it failed, or its sharding object was destroyed");
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const at::Tensor part = group_->part_of(sum_, i);
      members_[i].result = locals_ ? locals_->watched(part) : part;
    }
  }
  if (whole()) return;
  for (Member& m : members_) m.reduced = m.reduced && m.shown.grad().defined();  // an optimizer's own zero_grad()
}

void FlatGradient::zero_what_does_not_count() {
  for (const Member& m : members_)
    if (!m.reduced) m.result.zero_();
}

GradientMessage FlatGradient::close() {
  take_buffer();
  prepare_sum();
  std::int64_t end = 0;  // behind the last element that is defined
  for (Member& m : members_) {
    if (!whole() && m.offset > end) {  // padding
      buffer_.narrow(0, end, m.offset - end).zero_();
      for (const at::Tensor& later_source : later_sources_) later_source.narrow(0, end, m.offset - end).zero_();
    }
    end = m.offset + m.numel;
    if (m.given || (in_place_ && m.reduced && adds_up_)) continue;
    const at::Tensor& grad = m.parameter.grad();
    if (in_place_ && grad.defined() && !holds(grad, m.result)) {  // one that the user put there
      check_gradient(m.name, grad, m.dtype, m.device, m.sizes);
      m.result.copy_(grad);
      m.given = true;
    } else {
      place_of(buffer_, m).zero_();
      for (const at::Tensor& later_source : later_sources_) place_of(later_source, m).zero_();
    }
  }
  if (fixed_order_) zero_what_does_not_count();
  if (whole()) {
    std::vector<float> counters;
    for (const bool given : {true, false})
      for (const Member& m : members_) counters.push_back(m.given == given);
    const auto count = static_cast<std::int64_t>(counters.size());
    buffer_.narrow(0, buffer_.numel() - count, count).copy_(at::tensor(counters));
    if (fixed_order_) sum_.narrow(0, sum_.numel() - count, count).zero_();
    const at::Tensor flat = buffer_.narrow(0, 0, buffer_.numel() - count);
    // The key of compression is not the number: another first order than the learned one makes other buckets.
    return {.key = concat(members_.front().name, " and ", members_.size() - 1, " more, ", flat.numel(), " elements"),
            .tag = concat("gradients, ", name_),
            .flat = flat,
            .message = buffer_,
            .result = {},
            .sum = sum_,
            .later_sources = later_sources_,
            .segments = &segments_};
  }
  if (buffer_.numel() > end) {
    buffer_.narrow(0, end, buffer_.numel() - end).zero_();
    for (const at::Tensor& later_source : later_sources_)
      later_source.narrow(0, end, later_source.numel() - end).zero_();
  }
  // With nothing in the sum yet, the reduction writes there.
  const bool fresh = std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.reduced; });
  const bool straight = fresh && buffer_.scalar_type() == sum_.scalar_type() && buffer_.device() == sum_.device();
  result_ = fixed_order_ || straight
                ? sum_
                : context_->pool.take(group_->flat_layout().shard_numel(), buffer_.scalar_type(), BufferUse::shards);
  return {.key = group_->name(),
          .tag = concat("reduce ", group_->name()),
          .flat = buffer_,
          .message = {},
          .result = result_,
          .sum = sum_,
          .later_sources = later_sources_,
          .segments = &segments_};
}

void FlatGradient::reduced() {
  if (whole()) {
    const at::Tensor& with_counters = fixed_order_ ? sum_ : buffer_;
    const auto count = static_cast<std::int64_t>(counts_.size());
    const at::Tensor counters = with_counters.narrow(0, with_counters.numel() - count, count).to(at::kCPU, at::kFloat);
    std::copy_n(counters.const_data_ptr<float>(), counts_.size(), counts_.begin());
    return;
  }
  if (!result_.is_same(sum_)) {
    zero_what_does_not_count();
    sum_.add_(result_);
    context_->pool.give(std::move(result_), BufferUse::shards);
  }
  result_.reset();
  give_buffers();
}

std::pair<bool, bool> FlatGradient::used_and_missed(std::size_t m) const {
  return {counts_[m] > 0, counts_[members_.size() + m] > 0};
}

void FlatGradient::show(std::size_t i, bool used) {
  Member& m = members_[i];
  if (!used && (whole() || !m.reduced)) return;  // keeps its grad(): undefined if it was
  m.reduced = true;
  m.hidden = false;
  at::Tensor& grad = m.shown.mutable_grad();
  if (whole() || !grad.defined()) grad = m.result;
  if (!whole()) signs_->put(i);
}

void FlatGradient::end(bool was_reduced) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& m = members_[i];
    if (was_reduced) m.given = false;
    if (!std::exchange(m.hidden, false)) continue;
    if (whole())
      m.shown.mutable_grad() = m.result;
    else
      signs_->put(i);
  }
}

void FlatGradient::fail() noexcept {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!whole()) signs_->take(i);
    members_[i].parameter.mutable_grad().reset();
    forget(members_[i]);
  }
  if (groups_.per_source) groups_.per_source->clear();
  if (whole()) return;
  // A reduction that is still under way keeps its memory alive by itself; ours is let go, not reused.
  buffer_.reset();
  later_sources_.clear();
  result_.reset();
  sum_.reset();
  locals_.reset();
  for (Member& m : members_) m.result.reset();
}

void FlatGradient::zero_grad() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!whole()) signs_->take(i);
    members_[i].parameter.mutable_grad().reset();
    forget(members_[i]);
  }
  if (whole() || !buffer_.defined()) return;
  give_buffers();  // what paused backwards left
}

void FlatGradient::scale_unreduced(double factor) {
  if (whole()) return;
  for (const Member& m : members_)
    if (m.given) place_of(buffer_, m).mul_(factor);
}

std::int64_t FlatGradient::shard_bytes() const {
  return !whole() && sum_.defined() ? static_cast<std::int64_t>(sum_.nbytes()) : 0;
}

std::vector<FlatGradient::Member> FlatGradient::release_members() {
  for (Member& m : members_)
    if (!holds(m.shown.grad(), m.result)) {
      m.given = m.reduced = false;
      m.result.reset();
    }
  return std::move(members_);
}

std::vector<std::unique_ptr<FlatGradient>> whole_gradients(const GradientGroups& groups,
                                                           const std::vector<bool>& shared,
                                                           std::vector<FlatGradient::Member> members,
                                                           const std::vector<std::vector<std::size_t>>& lists,
                                                           comm::Reduction reduction, bool fixed_order) {
  const at::NoGradGuard no_grad;
  std::vector<std::unique_ptr<FlatGradient>> made;
  for (const std::vector<std::size_t>& list : lists) {
    std::vector<FlatGradient::Member> chosen;
    for (const std::size_t i : list) chosen.push_back(std::move(members[i]));
    const bool is_shared = !shared.empty() && shared[list.front()];
    made.push_back(std::make_unique<FlatGradient>(
        concat("bucket ", made.size()),
        GradientGroups{.all = groups.all,
                       .shards = {},
                       .replicas = groups.all,
                       .expert_replicas = is_shared ? groups.expert_replicas : comm::Group(),
                       .per_source = is_shared ? nullptr : groups.per_source},
        std::move(chosen), reduction, fixed_order));
  }
  return made;
}

}  // namespace tessera::parallel
