#pragma once
/// \file
/// Numbers that features want added up over the ranks when a step is logged: all of them travel together.

#include <tessera/train/reporting/metrics.h>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace tessera::train {

class LogSums {
 public:
  /// Puts the sums over the ranks into the step's metrics. It may be collective.
  using Tell = std::function<void(StepMetrics& metrics, const double* sums)>;

  /// This rank's numbers, as many on every rank; none: `tell` is called all the same.
  void add(const std::vector<double>& own, Tell tell) {
    tells_.emplace_back(own_.size(), std::move(tell));
    own_.insert(own_.end(), own.begin(), own.end());
  }
  const std::vector<double>& own() const { return own_; }
  /// Once metrics.sums has the sums.
  void tell(StepMetrics& metrics) const {
    for (const auto& [place, tell] : tells_) tell(metrics, metrics.sums.data() + place);
  }

 private:
  std::vector<double> own_;
  std::vector<std::pair<std::size_t, Tell>> tells_;
};

}  // namespace tessera::train
