#include <tessera/train/features/row_balance.h>

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/config/core/run_config.h>
#include <tessera/launch/agent/available_memory.h>
#include <tessera/train/features/run_feature.h>
#include <tessera/train/reporting/metrics.h>

namespace tessera::train {
namespace {

constexpr double used_share = 0.8;  // share of the free memory that may be used; the rest is a reserve

}  // namespace

const std::vector<std::int64_t>& RowBalance::begin_step(const RunPlan& plan, std::int64_t step) {
  if (first_bytes_ == 0) first_bytes_ = resident_bytes();
  micro_batches_ = plan.micro_batches(step);
  // The last step of an epoch may have fewer rows than all ranks have micro-batches.
  balanced_ = plan.rows_of_step(step) / plan.data_ranks >= micro_batches_;
  shares_ = balanced_ ? balancer_.shares(plan.rows_of_step(step), micro_batches_) : plan.equal_shares(step);
  return shares_;
}

std::vector<std::int64_t> RowBalance::own_numbers() const {
  std::vector<std::int64_t> numbers(2 * shares_.size(), 0);
  if (!last_) return numbers;
  const auto rank = static_cast<std::size_t>(rank_);
  numbers[2 * rank] = last_->nanoseconds;
  numbers[2 * rank + 1] = last_->most;
  return numbers;
}

void RowBalance::take_numbers(const std::int64_t* sums) {
  if (!last_) return;
  std::vector<double> seconds;
  std::vector<std::int64_t> most;
  for (std::size_t r = 0; r < shares_.size(); ++r) {
    seconds.push_back(static_cast<double>(sums[2 * r]) * 1e-9);
    most.push_back(sums[2 * r + 1]);
  }
  balancer_.measured(last_->shares, seconds, most, last_->micro_batches);
}

void RowBalance::computed(double seconds) {
  if (!balanced_) return last_.reset();
  const std::int64_t own = shares_[static_cast<std::size_t>(rank_)];
  largest_ = std::max(largest_, (own + micro_batches_ - 1) / micro_batches_);
  last_ = {shares_, micro_batches_, static_cast<std::int64_t>(seconds * 1e9), rows_that_fit()};
}

/// The peak so far, divided by rows, includes gradients and optimizer states, so this overestimates a row's memory.
std::int64_t RowBalance::rows_that_fit() const {
  constexpr std::int64_t unbounded = std::int64_t{1} << 40;
  const std::int64_t grown = peak_resident_bytes() - first_bytes_;
  if (!measures_memory_ || grown <= 0 || largest_ < 1) return unbounded;
  const double per_row = static_cast<double>(grown) / static_cast<double>(largest_);
  const double free = used_share * static_cast<double>(launch::available_bytes()) / local_ranks_;
  const double rows = static_cast<double>(largest_) + std::max(0.0, free / per_row);
  return std::min(unbounded, static_cast<std::int64_t>(rows) * micro_batches_);
}

namespace {

class RowBalanceFeature : public RunFeature {
 public:
  void prepare_model(ModelBuild& build) override {
    if (build.model.balance().experts > 0)
      throw InputError(
          "--balance_batches: the routers' losses of a mixture of experts are means over micro-batches, so "
          "micro-batches of unequal size would change them; remove it");
    balance_.emplace(build.world, std::vector<double>());
    build.parts.shares = &*balance_;
  }
  void begin_run(RunBegin& begin) override {
    if (begin.resumed != nullptr) balance_.emplace(begin.world, begin.resumed->seconds_per_row);
  }
  void log(LogSums& sums) override {
    sums.add({}, [this](StepMetrics& metrics, const double*) { metrics.shares = balance_->shares(); });
  }
  void save(checkpoint::RunState& state) const override {
    state.seconds_per_row = balance_->balancer().seconds_per_row();
  }

 private:
  std::optional<RowBalance> balance_;
};

}  // namespace

std::unique_ptr<RunFeature> make_row_balance(const RunConfig& config) {
  return config.optimization.balance_batches ? std::make_unique<RowBalanceFeature>() : nullptr;
}

}  // namespace tessera::train
