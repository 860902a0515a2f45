#include <tessera/parallel/sharding/shard_gradients.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/parallel/sharding/gradient_checks.h>
#include <tessera/parallel/sharding/unused.h>

#include <algorithm>
#include <numeric>

namespace tessera::parallel {
ShardGradients::ShardGradients(ShardingContext& context, std::vector<FlatGroup*> groups,
                               const ShardGradientsOptions& options, std::function<void(std::size_t)> complete)
    : context_(context), options_(options), complete_(std::move(complete)) {
  for (FlatGroup* group : groups) {
    Flat flat;
    flat.group = group;
    const std::size_t n = group->members().size();
    flat.ready.assign(n, false);
    flat.filled.assign(n, false);
    flat.in_sum.assign(n, false);
    for (const FlatGroup::Member& m : group->members()) flat.segments.push_back({m.sizes, m.offset, m.numel});
    if (fixed_order() && group->dtype() != at::kFloat && group->dtype() != at::kDouble)
      throw InputError(concat("sharding: unit '", group->name(), "' computes in ", c10::toString(group->dtype()),
                              ", and sums of such gradients would be rounded between micro-batches, differently for "
                              "every number of ranks; with logical_shards parameters are fp32 or fp64"));
    std::vector<at::Tensor> parameters;
    for (const FlatGroup::Member& m : group->members()) parameters.push_back(m.parameter);
    flat.moved = std::make_unique<MovedGradients>(std::move(parameters));
    flats_.push_back(std::move(flat));
    pending_of_unit_.resize(std::max(pending_of_unit_.size(), group->unit() + 1));
  }
  order_.resize(flats_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

at::ScalarType ShardGradients::wire_dtype(const FlatGroup& group) const {
  if (group.dtype() == at::kDouble || !at::isFloatingType(group.dtype())) return group.dtype();
  return options_.reduce_dtype.value_or(at::kFloat);
}

void ShardGradients::begin(bool paused) {
  paused_ = paused && options_.keep_whole_while_paused;
  if (touched_) return;  // another thread's backward
  next_ = 0;
  completed_.clear();
  std::fill(pending_of_unit_.begin(), pending_of_unit_.end(), 0);
  for (Flat& flat : flats_) {
    flat.moved->take();
    std::fill(flat.ready.begin(), flat.ready.end(), false);
    if (flat.state == State::full) flat.state = State::filling;  // by paused backwards
    flat.pending = flat.ready.size();
    pending_of_unit_[flat.group->unit()] += flat.pending;
  }
}

void ShardGradients::take_buffer(Flat& flat) {
  bound_memory();
  flat.buffer = context_.pool.take(flat.group->flat_layout().padded, wire_dtype(*flat.group), BufferUse::gradients);
  flat.state = State::filling;
}

/// The gradient that fills and one that is being reduced: more would need memory for little overlap.
void ShardGradients::bound_memory() {
  while (reducing_.size() > 1) finish(flats_[reducing_.front()]);
}

void ShardGradients::on_gradient(std::size_t g, std::size_t m) {
  Flat& flat = flats_[g];
  const FlatGroup::Member& member = flat.group->members()[m];
  at::Tensor& grad = member.parameter.mutable_grad();
  if (!grad.defined()) return;
  touched_ = true;
  const at::NoGradGuard no_grad;
  check_gradient(member.name, grad, flat.group->dtype(), member.parameter.device(), member.sizes);
  if (flat.state == State::reducing)
    throw Error(concat("sharding: parameter '", member.name,
                       "' received a second gradient in one backward after the reduction of unit '", flat.group->name(),
                       "' had begun (re-entrant checkpointing of a layer that is used elsewhere, too)"));
  if (flat.state == State::empty) take_buffer(flat);
  const at::Tensor place = flat.buffer.narrow(0, member.offset, member.numel);
  if (flat.filled[m]) {
    place.view(member.sizes).add_(grad);
  } else {
    const bool finite = copy_checked(place.view(member.sizes), grad, options_.check_finite);
    if (!finite && first_not_finite_.empty()) first_not_finite_ = member.name;
    flat.filled[m] = true;
  }
  grad.reset();
  if (flat.ready[m]) return;
  flat.ready[m] = true;
  const std::size_t unit = flat.group->unit();
  if (--flat.pending == 0) {
    flat.state = State::full;
    completed_.push_back(g);
    if (!paused_ && !options_.reduce_at_end) start_those_whose_turn_it_is(false);
  }
  if (--pending_of_unit_[unit] == 0) complete_(unit);
}

void ShardGradients::start_those_whose_turn_it_is(bool all) {
  for (; next_ < order_.size(); ++next_) {
    Flat& flat = flats_[order_[next_]];
    if (!all && flat.state != State::full) return;
    start(flat);
    reducing_.push_back(order_[next_]);
    if (options_.wait_at_once || fixed_order()) finish(flat);
    if (all) bound_memory();
  }
}

/// Memory for the sums, zero where nothing counts yet.
void ShardGradients::prepare_sum(Flat& flat) {
  const FlatGroup& group = *flat.group;
  if (!flat.sum.defined())
    flat.sum = comm::zeros_shared(context_.shards, {group.flat_layout().shard_numel()},
                                  at::TensorOptions(group.shard_dtype()).device(group.shard().device()));
  for (std::size_t m = 0; m < flat.in_sum.size(); ++m) {
    const at::Tensor& local = group.members()[m].local;
    if (!local.grad().defined() && flat.in_sum[m]) flat.in_sum[m] = false;  // an optimizer's own zero_grad()
  }
}

void ShardGradients::start(Flat& flat) {
  const FlatGroup& group = *flat.group;
  const at::NoGradGuard no_grad;
  if (flat.state == State::empty) take_buffer(flat);
  std::int64_t end = 0;  // of what is defined
  for (std::size_t m = 0; m < flat.filled.size(); ++m) {
    const FlatGroup::Member& member = group.members()[m];
    if (member.offset > end) flat.buffer.narrow(0, end, member.offset - end).zero_();  // padding
    if (!flat.filled[m]) flat.buffer.narrow(0, member.offset, member.numel).zero_();
    end = member.offset + member.numel;
  }
  if (flat.buffer.numel() > end) flat.buffer.narrow(0, end, flat.buffer.numel() - end).zero_();
  prepare_sum(flat);
  flat.state = State::reducing;
  flat.across_started = false;
  const comm::Tag tag(concat("reduce ", group.name()));
  if (fixed_order()) return start_fixed_order(flat);

  const bool fresh = std::none_of(flat.in_sum.begin(), flat.in_sum.end(), [](bool in) { return in; });
  const bool straight =
      fresh && flat.buffer.scalar_type() == flat.sum.scalar_type() && flat.buffer.device() == flat.sum.device();
  flat.result = straight ? flat.sum
                         : context_.pool.take(flat.group->flat_layout().shard_numel(), flat.buffer.scalar_type(),
                                              BufferUse::gradients);
  const bool predivide = options_.predivide_factor != 1;
  if (predivide) flat.buffer.mul_(1.0 / options_.predivide_factor);
  const comm::Reduction reduction = predivide ? comm::Reduction::sum : options_.reduction;
  flat.work = options_.compression ? options_.compression->reduce({group.name(), flat.buffer, flat.segments,
                                                                   context_.shards, reduction, flat.result, true})
                                   : context_.shards.reduce_scatter(flat.result, flat.buffer, reduction);
}

/// sum = ((sum + x_0) + x_1) + ... in the order of the data-parallel ranks. With copies of the shards (HSDP) the sum
/// travels from one shard group to the next, each adding its own ranks' parts.
void ShardGradients::start_fixed_order(Flat& flat) {
  if (options_.reduction == comm::Reduction::mean) flat.buffer.mul_(1.0 / static_cast<double>(options_.logical_shards));
  for (std::size_t m = 0; m < flat.in_sum.size(); ++m)
    if (!flat.in_sum[m]) flat.group->part_of(flat.sum, m).zero_();
  for (int copy = 0; copy < context_.copies.size(); ++copy) {
    if (copy == context_.copies.rank()) context_.shards.accumulate_scatter(flat.sum, flat.buffer).wait();
    if (context_.copies.size() > 1) context_.copies.broadcast(flat.sum, copy).wait();
  }
}

void ShardGradients::start_across_copies(Flat& flat) {
  if (flat.across_started) return;
  flat.across_started = true;
  flat.work.wait();
  flat.work = {};
  if (context_.copies.size() == 1 || fixed_order()) return;
  const comm::Tag tag(concat("reduce ", flat.group->name()));
  const bool predivide = options_.predivide_factor != 1;
  flat.work = context_.copies.all_reduce(flat.result, predivide ? comm::Reduction::sum : options_.reduction);
}

void ShardGradients::finish(Flat& flat) {
  const at::NoGradGuard no_grad;
  start_across_copies(flat);
  flat.work.wait();
  flat.work = {};
  if (!fixed_order()) {
    if (options_.predivide_factor != 1)
      flat.result.mul_(options_.predivide_factor /
                       (options_.reduction == comm::Reduction::mean ? context_.data_parallel.size() : 1));
    if (!flat.result.is_same(flat.sum)) {
      for (std::size_t m = 0; m < flat.in_sum.size(); ++m)
        if (!flat.in_sum[m]) flat.group->part_of(flat.sum, m).zero_();
      flat.sum.add_(flat.result);
      context_.pool.give(std::move(flat.result), BufferUse::gradients);
    }
  }
  flat.result.reset();
  context_.pool.give(std::move(flat.buffer), BufferUse::gradients);
  flat.buffer.reset();
  flat.state = State::empty;
  const auto self = static_cast<std::size_t>(&flat - flats_.data());
  reducing_.erase(std::find(reducing_.begin(), reducing_.end(), self));
}

void ShardGradients::end() {
  if (!touched_ && !options_.reduce_at_end) return;
  touched_ = false;
  if (paused_) return;
  const at::NoGradGuard no_grad;
  start_those_whose_turn_it_is(true);
  for (const std::size_t g : reducing_) start_across_copies(flats_[g]);
  while (!reducing_.empty()) finish(flats_[reducing_.front()]);
  share_usage();
  if (!order_known_) learn_order();
}

/// Which parameters any rank used, and any rank missed: one small sum for all of them.
void ShardGradients::share_usage() {
  std::vector<std::int32_t> counts;
  for (const Flat& flat : flats_)
    for (const bool filled : flat.filled) counts.push_back(filled);
  const auto n = static_cast<std::int64_t>(counts.size());
  at::Tensor shared = at::tensor(counts, at::kInt).to(context_.data_parallel.device());
  const comm::Tag tag("used parameters");
  context_.data_parallel.all_reduce(shared).wait();
  shared = shared.cpu();
  const std::int32_t* ranks = shared.const_data_ptr<std::int32_t>();
  const std::int32_t all = context_.data_parallel.size();
  if (!options_.find_unused_parameters && std::any_of(ranks, ranks + n, [&](std::int32_t r) { return r < all; })) {
    std::vector<std::vector<bool>> used;
    for (Flat& flat : flats_) used.push_back(std::exchange(flat.filled, std::vector<bool>(flat.filled.size(), false)));
    throw_missing(used);
  }
  std::size_t i = 0;
  for (Flat& flat : flats_)
    for (std::size_t m = 0; m < flat.filled.size(); ++m, ++i) {
      flat.filled[m] = false;
      if (ranks[i] == 0 && !flat.in_sum[m]) continue;  // nobody used it: no gradient
      flat.in_sum[m] = true;
      at::Tensor& grad = flat.group->members()[m].local.mutable_grad();
      if (!grad.defined()) grad = flat.group->part_of(flat.sum, m);
      flat.moved->put(m);
    }
}

void ShardGradients::learn_order() {
  std::vector<std::int64_t> order(completed_.begin(), completed_.end());
  for (const std::size_t g : order_)
    if (std::find(completed_.begin(), completed_.end(), g) == completed_.end())
      order.push_back(static_cast<std::int64_t>(g));
  at::Tensor shared = at::tensor(order, at::kLong).to(context_.data_parallel.device());
  const comm::Tag tag("order of reductions");
  context_.data_parallel.broadcast(shared, 0).wait();
  shared = shared.cpu();
  const std::int64_t* values = shared.const_data_ptr<std::int64_t>();
  order_.assign(values, values + shared.numel());
  order_known_ = true;
}

void ShardGradients::throw_missing(const std::vector<std::vector<bool>>& used) const {
  std::string mine;
  std::vector<std::string> names;
  for (std::size_t g = 0; g < flats_.size(); ++g)
    for (std::size_t m = 0; m < used[g].size(); ++m) {
      if (!used[g][m]) mine += concat(names.size(), "\n");
      names.push_back(flats_[g].group->members()[m].name);
    }
  throw_unused(context_.data_parallel, names, mine);
}

void ShardGradients::fail() noexcept {
  touched_ = false;
  for (Flat& flat : flats_) {
    flat.moved->take();
    for (const FlatGroup::Member& member : flat.group->members()) {
      member.parameter.mutable_grad().reset();
      member.local.mutable_grad().reset();
    }
    std::fill(flat.filled.begin(), flat.filled.end(), false);
    std::fill(flat.in_sum.begin(), flat.in_sum.end(), false);
    // A reduction that is still under way keeps its memory alive by itself; ours is let go, not reused.
    flat.buffer.reset();
    flat.result.reset();
    flat.sum.reset();
    flat.work = {};
    flat.state = State::empty;
  }
  reducing_.clear();
}

void ShardGradients::scale_unreduced(double factor) {
  for (Flat& flat : flats_) {
    const auto& members = flat.group->members();
    for (std::size_t m = 0; m < members.size(); ++m)
      if (flat.filled[m]) flat.buffer.narrow(0, members[m].offset, members[m].numel).mul_(factor);
  }
}

void ShardGradients::zero_grad() {
  first_not_finite_.clear();
  for (Flat& flat : flats_) {
    flat.moved->take();
    for (const FlatGroup::Member& member : flat.group->members()) {
      member.parameter.mutable_grad().reset();
      member.local.mutable_grad().reset();
    }
    std::fill(flat.in_sum.begin(), flat.in_sum.end(), false);
    if (flat.state == State::filling || flat.state == State::full) {  // what paused backwards left
      context_.pool.give(std::move(flat.buffer), BufferUse::gradients);
      flat.buffer.reset();
      flat.state = State::empty;
      std::fill(flat.filled.begin(), flat.filled.end(), false);
    }
  }
}

std::vector<const FlatGroup*> ShardGradients::in_order() const {
  std::vector<const FlatGroup*> result;
  for (const std::size_t g : order_) result.push_back(flats_[g].group);
  return result;
}

std::int64_t ShardGradients::shard_bytes() const {
  std::int64_t bytes = 0;
  for (const Flat& flat : flats_)
    if (flat.sum.defined()) bytes += static_cast<std::int64_t>(flat.sum.nbytes());
  return bytes;
}

}  // namespace tessera::parallel
