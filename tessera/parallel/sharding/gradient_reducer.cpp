#include <tessera/parallel/sharding/gradient_reducer.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/parallel/sharding/gradient_checks.h>
#include <tessera/parallel/sharding/unused.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace tessera::parallel {

GradientReducer::GradientReducer(comm::Group all, std::vector<std::unique_ptr<FlatGradient>> flats,
                                 GradientReducerOptions options, std::function<void(std::size_t)> complete)
    : all_(std::move(all)), options_(std::move(options)), complete_(std::move(complete)) {
  place(std::move(flats));
  check_types();
}

void GradientReducer::check_types() const {
  for (const Flat& flat : flats_)
    for (const FlatGradient::Member& member : flat.gradient->members()) {
      const at::ScalarType dtype = member.parameter.scalar_type();
      if (options_.reduction.fixed_order() && dtype != at::kFloat && dtype != at::kDouble)
        throw InputError(concat("data parallelism: parameter '", member.name, "' is ", c10::toString(dtype),
                                ", whose gradient sums would be rounded between micro-batches, differently for "
                                "every number of ranks; with logical_shards use fp32 or fp64 parameters (compute in "
                                "bf16 under autocast)"));
    }
}

GradientReducer::GradientReducer(comm::Group all, std::vector<NamedTensor> parameters, BucketSizes sizes,
                                 GradientReducerOptions options)
    : GradientReducer(std::move(all), {}, std::move(options), [](std::size_t) {}) {
  in_buckets_ = std::move(parameters);
  sizes_ = std::move(sizes);
  std::vector<std::size_t> order(in_buckets_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  assignment_ = assign_buckets(in_buckets_, order, sizes_);
  rebuild();
  check_types();
}

std::vector<at::Tensor> GradientReducer::parameters() const {
  std::vector<at::Tensor> result;
  for (const Place& p : places_) result.push_back(flats_[p.flat].gradient->members()[p.member].parameter);
  return result;
}

void GradientReducer::place(std::vector<std::unique_ptr<FlatGradient>> flats) {
  flats_.clear();
  for (std::unique_ptr<FlatGradient>& made : flats) {
    const auto& members = made->members();
    for (std::size_t m = 0; m < members.size(); ++m) {
      places_.resize(std::max(places_.size(), members[m].index + 1));
      places_[members[m].index] = {flats_.size(), m};
    }
    pending_of_unit_.resize(std::max(pending_of_unit_.size(), made->unit() + 1));
    flats_.push_back({.gradient = std::move(made)});
  }
  order_.resize(flats_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

/// Usually no gradients are kept, and the old memory is freed before new memory is allocated.
void GradientReducer::rebuild() {
  std::vector<FlatGradient::Member> members;
  for (const NamedTensor& p : in_buckets_)
    members.push_back({.name = p.name, .parameter = p.tensor, .index = members.size(), .shown = p.tensor});
  for (WholeGradient* bucket : buckets_)
    for (FlatGradient::Member& member : bucket->release_members()) members[member.index] = std::move(member);
  buckets_.clear();
  flats_.clear();
  const GradientGroups groups{.all = all_,
                              .shards = {},
                              .replicas = all_,
                              .expert_replicas = options_.expert_replicas,
                              .per_source = options_.per_source};
  std::vector<std::unique_ptr<FlatGradient>> flats;
  for (auto& bucket : whole_gradients(groups, sizes_.shared_by_experts, std::move(members), assignment_,
                                      options_.reduction.op, options_.reduction.fixed_order())) {
    buckets_.push_back(bucket.get());
    flats.push_back(std::move(bucket));
  }
  place(std::move(flats));
}

void GradientReducer::begin(bool paused) {
  if (touched_) return;  // our backward is already running; this one belongs to another thread
  const at::NoGradGuard no_grad;
  begun_by_ = std::this_thread::get_id();
  paused_ = paused;
  for (Flat& flat : flats_) flat.gradient->end_backward(false);
  if (std::exchange(rebuild_, false)) rebuild();
  next_ = 0;
  ready_order_.clear();
  std::fill(pending_of_unit_.begin(), pending_of_unit_.end(), 0);
  for (Flat& flat : flats_) {
    flat.gradient->begin_backward();
    flat.pending = flat.gradient->members().size();
    flat.ready.assign(flat.pending, false);
    flat.started = false;
    pending_of_unit_[flat.gradient->unit()] += flat.pending;
  }
  // The name is for the error about a non-finite norm. Once no gradients are in place, it refers to a finished step,
  // whoever called zero_grad().
  if (!first_not_finite_.empty() && std::none_of(flats_.begin(), flats_.end(), [](const Flat& flat) {
        const auto& members = flat.gradient->members();
        return std::any_of(members.begin(), members.end(), [](const auto& m) { return m.given || m.reduced; });
      }))
    first_not_finite_.clear();
}

/// The first gradient of a backward identifies the thread of our backward: gradients on the CPU arrive on the thread
/// that called backward, those of other devices on autograd's device threads.
void GradientReducer::claim(const FlatGradient::Member& member) {
  const auto thread = std::this_thread::get_id();
  const bool on_caller = member.parameter.is_cpu();
  if (!touched_) {
    touched_ = true;
    owner_ = on_caller ? thread : begun_by_;
  } else if (on_caller && thread != owner_) {
    throw Error(concat("data parallelism: two threads run backward through parameter '", member.name, "' at once"));
  }
}

void GradientReducer::on_gradient(std::size_t index) {
  const auto [f, m] = places_[index];
  Flat& flat = flats_[f];
  const FlatGradient::Member& member = flat.gradient->members()[m];
  const at::Tensor& grad = member.parameter.grad();
  if (!grad.defined()) return;
  claim(member);
  const at::NoGradGuard no_grad;
  check_gradient(member.name, grad, member.dtype, member.device, member.sizes);
  if (flat.started)
    throw Error(concat("data parallelism: parameter '", member.name,
                       "' received a second gradient in one backward after the reduction of ", flat.gradient->name(),
                       " had started (re-entrant checkpointing of a layer that is also used elsewhere)"));
  if (flat.gradient->needs_memory()) bound_memory();
  if (!flat.gradient->take_gradient(m, options_.check_finite) && first_not_finite_.empty())
    first_not_finite_ = member.name;
  if (flat.ready[m]) return;
  flat.ready[m] = true;
  ready_order_.push_back(index);
  if (--flat.pending == 0 && !paused_ && !options_.reduce_at_end) start_in_order(false);
  const std::size_t unit = flat.gradient->unit();
  if (--pending_of_unit_[unit] == 0) complete_(unit);
}

/// Limits the pool buffers to the gradient being filled and one being reduced: more would cost memory for little
/// overlap.
void GradientReducer::bound_memory() {
  while (reducing_.size() > 1) finish(reducing_.front());
}

void GradientReducer::start_in_order(bool all) {
  for (; next_ < order_.size(); ++next_) {
    const std::size_t f = order_[next_];
    if (!all && flats_[f].pending > 0) return;
    start(f);
    if (all && buckets_.empty()) bound_memory();
  }
}

void GradientReducer::start(std::size_t f) {
  const at::NoGradGuard no_grad;
  Flat& flat = flats_[f];
  flat.started = true;
  if (flat.gradient->needs_memory()) bound_memory();
  reducing_.push_back(f);
  GradientMessage message = flat.gradient->prepare_reduction();
  if (options_.before) options_.before(message.flat);
  flat.reduction.start(options_.reduction, flat.gradient->groups(), std::move(message));
  // In fixed order the shards' reductions have already been waited for, since a sum passes from replica to replica.
  if (options_.wait_at_once || (options_.reduction.fixed_order() && buckets_.empty())) finish(f);
}

void GradientReducer::finish(std::size_t f) {
  const at::NoGradGuard no_grad;
  flats_[f].reduction.finish();
  flats_[f].gradient->finish_reduction();
  reducing_.erase(std::find(reducing_.begin(), reducing_.end(), f));
}

bool GradientReducer::end() {
  const at::NoGradGuard no_grad;
  const bool ours = touched_ || options_.reduce_at_end;
  touched_ = ours && !paused_;  // stays set until the reduction has succeeded
  owner_ = std::this_thread::get_id();
  if (!touched_) {
    for (Flat& flat : flats_) flat.gradient->end_backward(false);
    return false;
  }
  start_in_order(true);
  for (const std::size_t f : reducing_) flats_[f].reduction.advance();
  while (!reducing_.empty()) finish(reducing_.front());
  show_results();
  for (Flat& flat : flats_) flat.gradient->end_backward(true);
  if (!order_known_) learn_order();
  touched_ = false;
  return true;
}

void GradientReducer::reduce() {
  begin(false);
  touched_ = true;
  end();
}

/// For each parameter, in the order of the flat gradients: how many of the ranks that reduce it have used it.
std::vector<std::int32_t> GradientReducer::sum_of_users() const {
  const comm::Tag tag("used parameters");
  std::vector<std::int32_t> ranks, expert_replicas;
  for (const Flat& flat : flats_)
    for (std::size_t m = 0; m < flat.ready.size(); ++m) ranks.push_back(flat.gradient->members()[m].given);
  comm::all_reduce_numbers(all_, ranks);
  if (!options_.expert_replicas) return ranks;
  std::vector<std::size_t> shared;
  std::size_t i = 0;
  for (const Flat& flat : flats_)
    for (std::size_t m = 0; m < flat.ready.size(); ++m, ++i)
      if (flat.gradient->groups().expert_replicas) shared.push_back(i);
  for (const std::size_t s : shared) expert_replicas.push_back(ranks[s]);
  comm::all_reduce_numbers(options_.expert_replicas, expert_replicas);
  for (std::size_t s = 0; s < shared.size(); ++s) ranks[shared[s]] = expert_replicas[s];
  return ranks;
}

/// For each parameter, in the order of the flat gradients: whether any rank has used it, and whether any has not.
/// Shards do not carry counters, so one small sum serves all of them.
std::vector<std::pair<bool, bool>> GradientReducer::used_and_missed() const {
  std::vector<std::pair<bool, bool>> result;
  for (const WholeGradient* bucket : buckets_)
    for (std::size_t m = 0; m < bucket->members().size(); ++m) result.push_back(bucket->used_and_missed(m));
  if (!buckets_.empty()) return result;
  const std::vector<std::int32_t> users = sum_of_users();
  for (const Flat& flat : flats_) {
    const comm::Group& expert_replicas = flat.gradient->groups().expert_replicas;
    const int ranks = all_.size() * (expert_replicas ? expert_replicas.size() : 1);
    for (std::size_t m = 0; m < flat.ready.size(); ++m) {
      const std::int32_t used = users[result.size()];
      result.emplace_back(used > 0, used < ranks);
    }
  }
  return result;
}

void GradientReducer::show_results() {
  if (flats_.empty()) return;
  const std::vector<std::pair<bool, bool>> users = used_and_missed();
  const bool missed = std::any_of(users.begin(), users.end(), [](const auto& user) { return user.second; });
  if (missed && !options_.find_unused_parameters)
    throw_missing();  // thrown on every rank, because the counts are equal
  auto user = users.begin();
  for (Flat& flat : flats_)
    for (std::size_t m = 0; m < flat.ready.size(); ++m) flat.gradient->show(m, (user++)->first);
}

void GradientReducer::learn_order() {
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  for (const std::size_t f : order_)  // parameters that were never ready come last, in their current order
    for (std::size_t m = 0; m < flats_[f].ready.size(); ++m)
      if (!flats_[f].ready[m]) order.push_back(static_cast<std::int64_t>(flats_[f].gradient->members()[m].index));
  at::Tensor shared = at::tensor(order, at::kLong).to(all_.device());
  const comm::Tag tag("order of reductions");
  all_.broadcast(shared, 0).wait();
  if (options_.expert_replicas) options_.expert_replicas.broadcast(shared, 0).wait();
  shared = shared.cpu();
  const std::int64_t* values = shared.const_data_ptr<std::int64_t>();
  use_order({values, values + shared.numel()});
}

bool GradientReducer::follow(const std::vector<std::size_t>& order) {
  std::vector<std::size_t> sorted = order, all(places_.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (sorted != all || order_known_) return false;
  use_order(order);
  return true;
}

void GradientReducer::use_order(std::vector<std::size_t> observed) {
  order_known_ = true;
  learnt_ = std::move(observed);
  if (!in_buckets_.empty()) {
    auto next = assign_buckets(in_buckets_, learnt_, sizes_);
    rebuild_ = next != std::exchange(assignment_, next);
    return;
  }
  std::vector<std::size_t> last(flats_.size());  // position of each flat gradient's last parameter
  for (std::size_t i = 0; i < learnt_.size(); ++i) last[places_[learnt_[i]].flat] = i;
  std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return last[a] < last[b]; });
}

void GradientReducer::throw_missing() const {
  std::string mine;
  std::vector<std::string> names(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const FlatGradient::Member& member = flats_[places_[i].flat].gradient->members()[places_[i].member];
    names[i] = member.name;
    if (!member.given) mine += concat(i, "\n");
  }
  throw_unused(all_, names, mine);
}

void GradientReducer::fail() noexcept {
  if (!touched_) {
    for (Flat& flat : flats_) flat.gradient->end_backward(false);
    return;
  }
  touched_ = false;
  for (Flat& flat : flats_) {
    flat.gradient->abort_backward();
    flat.reduction = {};
    // The next backward must not write into memory that a reduction may still be using. (A view that a failed backward
    // partly filled needs no cleaning: undefined gradients are copied over it.)
    rebuild_ = rebuild_ || (!buckets_.empty() && flat.started);
  }
  reducing_.clear();
}

void GradientReducer::zero_grad() {
  first_not_finite_.clear();
  for (Flat& flat : flats_) flat.gradient->zero_grad();
}

void GradientReducer::scale_unreduced(double factor) {
  for (Flat& flat : flats_) flat.gradient->scale_unreduced(factor);
}

std::vector<std::vector<std::string>> GradientReducer::buckets() const {
  std::vector<std::vector<std::string>> result;
  for (const std::size_t f : order_) {
    result.emplace_back();
    for (const FlatGradient::Member& member : flats_[f].gradient->members()) result.back().push_back(member.name);
  }
  return result;
}

std::int64_t GradientReducer::shard_bytes() const {
  std::int64_t bytes = 0;
  for (const Flat& flat : flats_) bytes += flat.gradient->shard_bytes();
  return bytes;
}

}  // namespace tessera::parallel
