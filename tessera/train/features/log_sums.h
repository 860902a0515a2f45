#pragma once
/// \file
/// Collects numbers that features need summed over the ranks when a step is logged; a single collective sums them all.

#include <tessera/train/reporting/metrics.h>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace tessera::train {

class LogSums {
 public:
  /// Stores the sums over the ranks in the step's metrics. May be collective.
  using Tell = std::function<void(StepMetrics& metrics, const double* sums)>;

  /// This rank's numbers, the same count on every rank; `tell` is called even if there are none.
  void add(const std::vector<double>& own, Tell tell) {
    tells_.emplace_back(own_.size(), std::move(tell));
    own_.insert(own_.end(), own.begin(), own.end());
  }
  const std::vector<double>& own() const { return own_; }
  /// Passes the sums on to every feature. Call this when metrics.sums contains them.
  void tell(StepMetrics& metrics) const {
    for (const auto& [place, tell] : tells_) tell(metrics, metrics.sums.data() + place);
  }

 private:
  std::vector<double> own_;
  std::vector<std::pair<std::size_t, Tell>> tells_;
};

}  // namespace tessera::train
