#include <tessera/parallel/sharding/whole_gradients.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/parallel/sharding/gradient_checks.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::parallel {
namespace {

std::int64_t to_bytes(double mebibytes) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(mebibytes * (1 << 20)));
}

/// optimizer.zero_grad(false) replaces grad() by a detached alias: the same memory is what counts.
bool holds(const at::Tensor& parameter, const at::Tensor& place) {
  const at::Tensor& grad = parameter.grad();
  return grad.defined() && grad.layout() == at::kStrided && grad.is_alias_of(place) &&
         grad.storage_offset() == place.storage_offset() && grad.sizes() == place.sizes() &&
         grad.strides() == place.strides();
}

class BucketGradient final : public FlatGradient {
 public:
  BucketGradient(const comm::Group& group, std::span<const NamedTensor> parameters, Bucket bucket, std::size_t number,
                 std::vector<WholeGradient>& gradients, const BucketOptions& options)
      : FlatGradient({.all = group, .shards = {}, .copies = group}),
        bucket_(std::move(bucket)),
        number_(number),
        gradients_(gradients),
        options_(options),
        numbers_(2 * bucket_.parameters.size()) {
    for (std::size_t m = 0; m < bucket_.parameters.size(); ++m) {
      const std::size_t i = bucket_.parameters[m];
      const at::Tensor& view = bucket_.views[m];
      members_.push_back(
          {parameters[i].name, parameters[i].tensor, i, view.scalar_type(), view.device(), view.sizes().vec()});
    }
    flat_ = bucket_.flat.narrow(0, 0, bucket_.flat.numel() - bucket_.tail.numel());
  }

  std::string name() const override { return concat("bucket ", number_); }

  void begin(bool reduces) override {
    if (options_.fixed_order) hide_sums();
    for (std::size_t m = 0; m < members_.size(); ++m) {
      WholeGradient& g = gradient(m);
      g.taken = g.refuses_local = false;
      if (!holds(members_[m].parameter, bucket_.views[m]))
        g.local = g.reduced = false;  // zero_grad(), or a gradient of the user's own, which counts as local
    }
    if (options_.reduction == comm::Reduction::sum && !options_.fixed_order) set_reduced_aside(reduces);
  }

  bool take(std::size_t m, bool check_finite) override {
    at::Tensor& grad = members_[m].parameter.mutable_grad();
    bool finite = true;
    if (!holds(members_[m].parameter, bucket_.views[m])) {
      finite = copy_checked(bucket_.views[m], grad, check_finite);
      grad = bucket_.views[m];
    }
    WholeGradient& g = gradient(m);
    g.local = g.taken = true;
    if (g.refuses_local)
      throw Error(concat("data parallelism: no_sync() began while the reduced gradient of '", members_[m].name,
                         "' was still in place; with Reduction::sum call zero_grad() before accumulating"));
    return finite;
  }

  bool gives(std::size_t m) const override { return gradients_[members_[m].index].local; }

  Passing close() override {
    const std::size_t count = members_.size();
    std::vector<float> tail(2 * count, 0.0f);
    for (std::size_t m = 0; m < count; ++m) {
      WholeGradient& g = gradient(m);
      if (!g.taken && !holds(members_[m].parameter, bucket_.views[m])) {
        const at::Tensor& grad = members_[m].parameter.grad();
        if (grad.defined()) {  // one that the user put there
          check_gradient(members_[m].name, grad, members_[m].dtype, members_[m].device, members_[m].sizes);
          bucket_.views[m].copy_(grad);
          g.local = true;
        } else {
          bucket_.views[m].zero_();
        }
      }
      tail[g.local ? m : count + m] = 1;
    }
    bucket_.tail.copy_(at::tensor(tail));
    if (options_.fixed_order) bucket_.sum_tail.zero_();
    // The key of compression is not the number: another first order than the learned one makes other buckets.
    return {.key = concat(members_.front().name, " and ", count - 1, " more, ", flat_.numel(), " elements"),
            .tag = concat("gradients, bucket ", number_),
            .flat = flat_,
            .message = bucket_.flat,
            .result = {},
            .sum = bucket_.sum,
            .segments = &bucket_.segments};
  }

  void reduced() override {
    const at::Tensor tail = (options_.fixed_order ? bucket_.sum_tail : bucket_.tail).to(at::kCPU, at::kFloat);
    std::copy_n(tail.const_data_ptr<float>(), numbers_.size(), numbers_.begin());
  }

  bool counts_travel() const override { return true; }
  std::pair<bool, bool> counts(std::size_t m) const override {
    return {numbers_[m] > 0, numbers_[members_.size() + m] > 0};
  }

  void show(std::size_t m, bool used) override {
    if (!used) return;  // keeps its grad(): undefined if it was
    members_[m].parameter.mutable_grad() = result(m);
    gradient(m).reduced = true;
    gradient(m).hidden = false;
  }

  void end(bool was_reduced) override {
    const at::NoGradGuard no_grad;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      WholeGradient& g = gradient(m);
      if (g.set_aside.defined()) {
        bucket_.views[m].add_(g.set_aside);
        g.set_aside.reset();
      }
      if (std::exchange(g.hidden, false)) members_[m].parameter.mutable_grad() = result(m);
      if (was_reduced) g.local = false;
    }
  }

  void fail() noexcept override {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      members_[m].parameter.mutable_grad().reset();
      gradient(m) = {};
    }
  }

  void zero_grad() override {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      members_[m].parameter.mutable_grad().reset();
      gradient(m).local = gradient(m).reduced = false;
    }
  }

  /// Where grad() is between backwards.
  const at::Tensor& result(std::size_t m) const {
    return options_.fixed_order ? bucket_.sum_views[m] : bucket_.views[m];
  }

 private:
  WholeGradient& gradient(std::size_t m) { return gradients_[members_[m].index]; }

  void hide_sums() {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      WholeGradient& g = gradient(m);
      at::Tensor& grad = members_[m].parameter.mutable_grad();
      if (grad.defined() && !holds(members_[m].parameter, result(m)))
        throw Error(
            concat("data parallelism: the gradient of '", members_[m].name,
                   "' was replaced between two micro-batches; in fixed order (logical_shards) grad() is zeroed, "
                   "scaled or read in place"));
      if (grad.defined()) {
        g.hidden = true;
        grad.reset();
      } else if (!g.hidden) {
        result(m).zero_();
      }
    }
  }

  void set_reduced_aside(bool reduces) {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      WholeGradient& g = gradient(m);
      const at::Tensor& view = bucket_.views[m];
      if (!g.reduced || g.set_aside.defined()) continue;
      if (reduces) {  // summing it again would multiply it by the number of ranks
        g.set_aside = view.clone();
        view.zero_();
      } else {
        g.refuses_local = view.count_nonzero().item<std::int64_t>() > 0;  // an optimizer may have zeroed it in place
        if (!g.refuses_local) g.reduced = false;
      }
    }
  }

  Bucket bucket_;
  std::size_t number_;
  std::vector<WholeGradient>& gradients_;
  BucketOptions options_;
  at::Tensor flat_;             ///< the bucket without its counters
  std::vector<float> numbers_;  ///< the counters after the reduction
};

}  // namespace

WholeGradients::WholeGradients(comm::Group group, std::vector<NamedTensor> parameters, const BucketOptions& options)
    : group_(std::move(group)), parameters_(std::move(parameters)), options_(options), gradients_(parameters_.size()) {
  // Backward produces gradients roughly in the reverse order of registration; the first backward tells the true one.
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  (void)follow(order);
}

bool WholeGradients::follow(const std::vector<std::size_t>& order) {
  auto next = assign(parameters_, order, to_bytes(options_.first_bucket_mb), to_bytes(options_.bucket_mb));
  const bool changed = next != assignment_;
  assignment_ = std::move(next);
  return changed;
}

std::vector<std::unique_ptr<FlatGradient>> WholeGradients::make() {
  std::vector<std::unique_ptr<FlatGradient>> flats;
  for (Bucket& bucket : make_buckets(group_, parameters_, assignment_, options_.fixed_order))
    flats.push_back(
        std::make_unique<BucketGradient>(group_, parameters_, std::move(bucket), flats.size(), gradients_, options_));
  return flats;
}

void WholeGradients::rebuild(std::vector<std::unique_ptr<FlatGradient>>& flats) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> kept(parameters_.size());  // gradients that live in the old buckets
  for (const auto& flat : flats) {
    const auto& bucket = static_cast<const BucketGradient&>(*flat);
    for (std::size_t m = 0; m < bucket.members().size(); ++m)
      if (holds(bucket.members()[m].parameter, bucket.result(m))) kept[bucket.members()[m].index] = bucket.result(m);
  }
  flats.clear();  // usually nothing is kept, and the old memory is free before the new is taken
  flats = make();
  for (const auto& flat : flats) {
    const auto& bucket = static_cast<const BucketGradient&>(*flat);
    for (std::size_t m = 0; m < bucket.members().size(); ++m) {
      const FlatGradient::Member& member = bucket.members()[m];
      if (!kept[member.index].defined()) continue;
      bucket.result(m).copy_(kept[member.index]);
      member.parameter.mutable_grad() = bucket.result(m);
    }
  }
}

}  // namespace tessera::parallel
