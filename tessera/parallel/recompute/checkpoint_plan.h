#pragma once
/// \file
/// Selection of a model's checkpointed regions: a plan by name, applied by the code that runs the model's blocks. Our
/// own models run theirs through models::PartRunner; models/checkpoint_blocks.h installs a plan there.

#include <ATen/core/Tensor.h>

#include <tessera/base/names/pattern.h>
#include <tessera/layout/checkpoint_plan.h>
#include <tessera/parallel/autograd/saved_tensors.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tessera::parallel {

using layout::CheckpointPart;
using layout::CheckpointPlan;

/// Runs regions according to a plan. Thread-safe.
class ActivationCheckpointing {
 public:
  /// Throws InputError for an invalid plan.
  explicit ActivationCheckpointing(const CheckpointPlan& plan);

  bool chooses(const std::string& name, std::int64_t block, CheckpointPart part) const;
  /// f(x), checkpointed if chosen; f is copied and called again in backward. `name` as in the model's parameter names.
  at::Tensor run(const std::string& name, std::int64_t block, CheckpointPart part,
                 const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x) const;
  /// Bytes of offloaded inputs; zeros without offload_inputs_to.
  SavedBytes offloaded() const;

 private:
  CheckpointPlan plan_;
  Pattern names_;
  std::shared_ptr<SavedTensorPolicy> offload_;
};

}  // namespace tessera::parallel
