#pragma once
/// \file
/// The features of a run, in the order in which they act.

#include <tessera/train/features/run_feature.h>

#include <functional>
#include <memory>
#include <vector>

namespace tessera::train {

class Features {
 public:
  /// Those that the settings ask for.
  static Features of(const RunConfig& config);

  /// The hook of each: features.each(&RunFeature::begin_step, start).
  template <class Hook, class... Arguments>
  void each(Hook hook, Arguments&&... arguments) const {
    for (const auto& feature : list_) std::invoke(hook, *feature, arguments...);
  }

 private:
  std::vector<std::unique_ptr<RunFeature>> list_;
};

}  // namespace tessera::train
