#include <tessera/parallel/sharding/reducer.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/parallel/sharding/gradient_checks.h>
#include <tessera/parallel/sharding/unused.h>

#include <algorithm>
#include <numeric>

namespace tessera::parallel {
namespace {

std::int64_t to_bytes(double mebibytes) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(mebibytes * (1 << 20)));
}

}  // namespace

Reducer::Reducer(comm::Group group, std::vector<NamedTensor> parameters, const ReducerOptions& options,
                 std::function<void()> after_reduction)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      options_(options),
      after_reduction_(std::move(after_reduction)) {
  if (options.reduction != comm::Reduction::mean && options.reduction != comm::Reduction::sum)
    throw InputError("data parallelism: gradients are reduced by mean or sum; min, max and product are no gradients");
  if (fixed_order() && options.logical_shards % group_.size() != 0)
    throw InputError(concat("data parallelism: logical_shards = ", options.logical_shards,
                            " micro-batches of a step do not divide by the ", group_.size(), " ranks of group '",
                            group_.name(), "'; use a multiple of every number of ranks that the run may have"));
  if (!(options.first_bucket_mb > 0) || !(options.bucket_mb > 0))
    throw InputError(concat("data parallelism: first_bucket_mb = ", options.first_bucket_mb,
                            ", bucket_mb = ", options.bucket_mb, "; both must be above 0"));
  for (const NamedTensor& p : parameters_) {
    const at::ScalarType dtype = p.tensor.scalar_type();
    if (fixed_order() && dtype != at::kFloat && dtype != at::kDouble)
      throw InputError(concat("data parallelism: parameter '", p.name, "' is ", c10::toString(dtype),
                              ", and sums of such gradients would be rounded between micro-batches, differently for "
                              "every number of ranks; with logical_shards the parameters are fp32 or fp64 (compute in "
                              "bf16 under autocast)"));
    if (p.tensor.device() != group_.device())
      throw InputError(concat("data parallelism: parameter '", p.name, "' is on ", p.tensor.device().str(),
                              " but group '", group_.name(), "' works on ", group_.device().str(),
                              "; move the module there first"));
  }
  // Backward produces gradients roughly in the reverse order of registration; the first backward tells the true one.
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  gradients_.resize(parameters_.size());
  place(make(assign(parameters_, order, to_bytes(options.first_bucket_mb), to_bytes(options.bucket_mb))));
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    gradients_[i].hook = after_gradient(parameters_[i].tensor, [this, i](const at::Tensor&) { on_gradient(i); });
  listening_ = listen_to_backward(*this);
}

Reducer::~Reducer() = default;

void Reducer::pause() {
  if (fixed_order())
    throw InputError(concat("data parallelism: no_sync() with logical_shards = ", options_.logical_shards,
                            ": in fixed order every micro-batch is reduced by itself; leave no_sync() out"));
  ++pauses_;
}

void Reducer::zero_grad() {
  const std::lock_guard lock(mutex_);
  first_not_finite_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.mutable_grad().reset();
    gradients_[i].local = gradients_[i].reduced = false;
  }
}

std::vector<std::vector<std::size_t>> Reducer::assignment() const {
  std::vector<std::vector<std::size_t>> result;
  for (const Bucket& bucket : buckets_) result.push_back(bucket.parameters);
  return result;
}

bool Reducer::holds(std::size_t i, const at::Tensor& place) const {
  const at::Tensor& grad = parameters_[i].tensor.grad();
  // optimizer.zero_grad(false) replaces grad() by a detached alias: the same memory is what counts.
  return grad.defined() && grad.layout() == at::kStrided && grad.is_alias_of(place) &&
         grad.storage_offset() == place.storage_offset() && grad.sizes() == place.sizes() &&
         grad.strides() == place.strides();
}

bool Reducer::holds_view(std::size_t i) const {
  return holds(i, buckets_[gradients_[i].bucket].views[gradients_[i].index]);
}

std::vector<Bucket> Reducer::make(const std::vector<std::vector<std::size_t>>& assignment) const {
  return make_buckets(group_, parameters_, assignment, fixed_order());
}

void Reducer::place(std::vector<Bucket> buckets) {
  buckets_ = std::move(buckets);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::size_t k = 0; k < buckets_[b].parameters.size(); ++k) {
      Gradient& g = gradients_[buckets_[b].parameters[k]];
      g.bucket = b;
      g.index = k;
    }
}

void Reducer::rebuild() {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<std::size_t, at::Tensor>> kept;  // gradients that live in the old buckets
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (holds(i, result(gradients_[i]))) kept.emplace_back(i, result(gradients_[i]));
  buckets_.clear();  // usually nothing is kept, and the old memory is free before the new is taken
  place(make(next_assignment_));
  next_assignment_.clear();
  for (auto& [i, gradient] : kept) {
    result(gradients_[i]).copy_(gradient);
    parameters_[i].tensor.mutable_grad() = result(gradients_[i]);
  }
}

void Reducer::set_reduced_aside() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Gradient& g = gradients_[i];
    if (!g.reduced || g.set_aside.defined()) continue;
    if (sync_) {  // summing it again would multiply it by the number of ranks
      g.set_aside = view(g).clone();
      view(g).zero_();
    } else {
      g.refuses_local = view(g).count_nonzero().item<std::int64_t>() > 0;  // an optimizer may have zeroed it in place
      if (!g.refuses_local) g.reduced = false;
    }
  }
}

void Reducer::put_reduced_back() {
  const at::NoGradGuard no_grad;
  for (Gradient& g : gradients_)
    if (g.set_aside.defined()) {
      view(g).add_(g.set_aside);
      g.set_aside.reset();
    }
}

/// Autograd shall move each micro-batch's gradient in, not add it to the sum.
void Reducer::hide_sums() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Gradient& g = gradients_[i];
    at::Tensor& grad = parameters_[i].tensor.mutable_grad();
    if (grad.defined() && !holds(i, result(g)))
      throw Error(concat("data parallelism: the gradient of '", parameters_[i].name,
                         "' was replaced between two micro-batches; in fixed order (logical_shards) grad() is zeroed, "
                         "scaled or read in place"));
    if (grad.defined()) {
      g.hidden = true;
      grad.reset();
    } else if (!g.hidden) {
      result(g).zero_();
    }
  }
}

void Reducer::show_sums() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (std::exchange(gradients_[i].hidden, false)) parameters_[i].tensor.mutable_grad() = result(gradients_[i]);
}

void Reducer::backward_begin() {
  const std::lock_guard lock(mutex_);
  if (touched_) return;  // our backward is running; this one is another thread's
  put_reduced_back();
  begun_by_ = std::this_thread::get_id();
  sync_ = pauses_ == 0;
  if (!next_assignment_.empty()) rebuild();
  if (fixed_order()) hide_sums();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Gradient& g = gradients_[i];
    g.ready = g.refuses_local = false;
    if (!holds_view(i))
      g.local = g.reduced = false;  // zero_grad(), or a gradient of the user's own, which counts as local
  }
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.parameters.size();
    bucket.started = false;
    bucket.work = bucket.tail_work = {};
  }
  next_bucket_ = 0;
  ready_order_.clear();
  if (options_.reduction == comm::Reduction::sum && !fixed_order()) set_reduced_aside();
}

void Reducer::check(std::size_t i, const at::Tensor& grad) const {
  const at::Tensor& view = buckets_[gradients_[i].bucket].views[gradients_[i].index];
  check_gradient(parameters_[i].name, grad, view.scalar_type(), view.device(), view.sizes());
}

void Reducer::on_gradient(std::size_t i) {
  const std::lock_guard lock(mutex_);
  const at::NoGradGuard no_grad;
  Gradient& g = gradients_[i];
  at::Tensor& grad = parameters_[i].tensor.mutable_grad();
  if (!grad.defined()) return;
  const auto thread = std::this_thread::get_id();
  const bool on_caller = grad.is_cpu();  // gradients of other devices arrive on autograd's device threads
  if (!touched_) {
    touched_ = true;
    owner_ = on_caller ? thread : begun_by_;
  } else if (on_caller && thread != owner_) {
    throw Error(
        concat("data parallelism: two threads run backward through parameter '", parameters_[i].name, "' at once"));
  }
  check(i, grad);
  if (!holds_view(i)) {
    const bool finite = copy_checked(view(g), grad, options_.check_finite);
    if (!finite && first_not_finite_.empty()) first_not_finite_ = parameters_[i].name;
    grad = view(g);
  }
  g.local = true;
  if (g.refuses_local)
    throw Error(concat("data parallelism: no_sync() began while the reduced gradient of '", parameters_[i].name,
                       "' was still in place; with Reduction::sum call zero_grad() before accumulating"));
  if (!sync_) return;
  Bucket& bucket = buckets_[g.bucket];
  if (g.ready) {  // re-entrant checkpointing: another part of the same backward gave a second gradient
    if (bucket.started)
      throw Error(concat("data parallelism: parameter '", parameters_[i].name,
                         "' received a second gradient in one backward after its bucket's reduction had begun "
                         "(re-entrant checkpointing of a shared layer); run such a backward under no_sync()"));
    return;
  }
  g.ready = true;
  ready_order_.push_back(i);
  if (--bucket.pending == 0 && !options_.reduce_at_end) start_ready_buckets();
}

void Reducer::start_ready_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) start(buckets_[next_bucket_]);
}

void Reducer::start(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  const std::size_t count = bucket.parameters.size();
  std::vector<float> tail(2 * count, 0.0f);
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = bucket.parameters[k];
    Gradient& g = gradients_[i];
    if (!g.ready && !holds_view(i)) {
      const at::Tensor& grad = parameters_[i].tensor.grad();
      if (grad.defined()) {  // one that the user put there
        check(i, grad);
        bucket.views[k].copy_(grad);
        g.local = true;
      } else {
        bucket.views[k].zero_();
      }
    }
    tail[g.local ? k : count + k] = 1;
  }
  if (fixed_order() && options_.reduction == comm::Reduction::mean)
    bucket.flat.mul_(1.0 / static_cast<double>(options_.logical_shards));
  bucket.tail.copy_(at::tensor(tail));
  const at::Tensor gradients = bucket.flat.narrow(0, 0, bucket.flat.numel() - bucket.tail.numel());
  if (predivides()) gradients.mul_(1.0 / options_.predivide_factor);
  const comm::Reduction reduction = predivides() ? comm::Reduction::sum : options_.reduction;
  const comm::Tag tag(concat("gradients, bucket ", next_bucket_));
  if (fixed_order()) {
    bucket.sum_tail.zero_();
    bucket.work = group_.accumulate(bucket.sum, bucket.flat);
  } else if (options_.compression) {
    // Not the bucket's number: another first order than the learned one makes other buckets.
    const std::string key = concat(parameters_[bucket.parameters.front()].name, " and ", count - 1, " more, ",
                                   gradients.numel(), " elements");
    bucket.work = options_.compression->reduce(
        {key, gradients, bucket.segments, group_, reduction, gradients, /*scatter=*/false});
    bucket.tail_work = group_.all_reduce(bucket.tail, reduction);
  } else {
    bucket.work = group_.all_reduce(bucket.flat, reduction);
  }
  if (options_.wait_at_once) {
    bucket.work.wait();
    bucket.tail_work.wait();
  }
  bucket.started = true;
  ++next_bucket_;
}

void Reducer::backward_end() {
  const std::lock_guard lock(mutex_);
  if (!touched_ && !options_.reduce_at_end) {
    show_sums();
    return put_reduced_back();
  }
  if (std::this_thread::get_id() != (touched_ ? owner_ : begun_by_)) return;
  if (sync_) finish();
  touched_ = false;
}

void Reducer::finish() {
  const at::NoGradGuard no_grad;
  while (next_bucket_ < buckets_.size()) start(buckets_[next_bucket_]);
  bool missing = false;
  for (Bucket& bucket : buckets_) {
    bucket.work.wait();
    bucket.tail_work.wait();
    if (predivides())
      bucket.flat.narrow(0, 0, bucket.flat.numel() - bucket.tail.numel())
          .mul_(options_.predivide_factor / (options_.reduction == comm::Reduction::mean ? group_.size() : 1));
    const std::size_t count = bucket.parameters.size();
    const at::Tensor tail = (fixed_order() ? bucket.sum_tail : bucket.tail).to(at::kCPU, at::kFloat);
    const float* numbers = tail.const_data_ptr<float>();
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = bucket.parameters[k];
      missing = missing || numbers[count + k] > 0;
      if (numbers[k] > 0) {
        parameters_[i].tensor.mutable_grad() = result(gradients_[i]);
        gradients_[i].reduced = true;
        gradients_[i].hidden = false;
      }
    }
  }
  if (missing && !options_.find_unused_parameters && !options_.reduce_at_end)
    throw_missing();  // on every rank: the reduced numbers are the same
  put_reduced_back();
  show_sums();
  for (Gradient& g : gradients_) g.local = false;
  if (!order_known_) learn_order();
  after_reduction_();
}

void Reducer::learn_order() {
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  for (const Bucket& bucket : buckets_)  // never ready: last, in the present order
    for (const std::size_t i : bucket.parameters)
      if (!gradients_[i].ready) order.push_back(static_cast<std::int64_t>(i));
  at::Tensor shared = at::tensor(order, at::kLong).to(group_.device());
  const comm::Tag tag("bucket order");
  group_.broadcast(shared, 0).wait();
  shared = shared.cpu();
  const std::int64_t* values = shared.const_data_ptr<std::int64_t>();
  const std::vector<std::size_t> observed(values, values + shared.numel());
  auto next = assign(parameters_, observed, to_bytes(options_.first_bucket_mb), to_bytes(options_.bucket_mb));
  if (next != assignment()) next_assignment_ = std::move(next);
  order_known_ = true;
}

void Reducer::throw_missing() const {
  std::string mine;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!gradients_[i].local) mine += concat(i, "\n");
    names.push_back(parameters_[i].name);
  }
  throw_unused(group_, names, mine);
}

void Reducer::backward_failed() noexcept {
  const std::lock_guard lock(mutex_);
  if (!touched_) {
    show_sums();
    return put_reduced_back();
  }
  if (std::this_thread::get_id() != owner_) return;
  touched_ = false;
  bool started = false;
  for (const Bucket& bucket : buckets_) started = started || bucket.started;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.mutable_grad().reset();
    gradients_[i].local = gradients_[i].reduced = gradients_[i].hidden = false;
    gradients_[i].set_aside.reset();
  }
  // A reduction that is still under way keeps its memory; the next backward must not write there. (A view that a failed
  // backward half filled needs no cleaning: undefined gradients are copied over it.)
  if (started) next_assignment_ = assignment();
}

}  // namespace tessera::parallel
