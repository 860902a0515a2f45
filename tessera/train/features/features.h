#pragma once
/// \file
/// The features of a run, in the order in which their hooks are called.

#include <tessera/train/features/run_feature.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tessera::train {

class Features {
 public:
  /// The features that the settings ask for.
  static Features of(const RunConfig& config);
  /// The subset of features that need only one of our models, not the run's data or its loss.
  static Features of_model(const RunConfig& config);

  bool empty() const { return list_.empty(); }
  /// Calls a hook of every feature: features.each(&RunFeature::begin_step, start).
  template <class Hook, class... Arguments>
  void each(Hook hook, Arguments&&... arguments) const {
    for (const auto& feature : list_) std::invoke(hook, *feature, arguments...);
  }
  /// The same for features that act within a step.
  template <class Hook, class... Arguments>
  void each_within_step(Hook hook, Arguments&&... arguments) const {
    for (const auto& feature : list_)
      if (auto* const within = dynamic_cast<MicroBatchFeature*>(feature.get()))
        std::invoke(hook, *within, arguments...);
  }
  /// For --device xla: throws an InputError that names a feature acting within a step on `model`, if there is one.
  void require_none_within_step(const models::LanguageModel& model) const;
  void add(std::unique_ptr<RunFeature> feature) { list_.push_back(std::move(feature)); }
  /// Whether any of them must know the outcome of a step when it ends.
  bool reads_outcome() const {
    return std::any_of(list_.begin(), list_.end(), [](const auto& feature) { return feature->reads_outcome(); });
  }

 private:
  /// Returns null if the settings do not ask for the feature.
  using MakeFeature = std::unique_ptr<RunFeature> (*)(const RunConfig& config);
  static Features make_all(std::span<const MakeFeature> makers, const RunConfig& config);

  std::vector<std::unique_ptr<RunFeature>> list_;
};

}  // namespace tessera::train
