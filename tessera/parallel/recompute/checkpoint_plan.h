#pragma once
/// \file
/// Which regions of a model are checkpointed: a plan on names, applied by whoever runs the model's blocks. Our own
/// models run theirs through models::PartRunner; models/checkpoint_blocks.h installs a plan there.

#include <ATen/core/Tensor.h>

#include <tessera/base/names/pattern.h>
#include <tessera/parallel/autograd/saved_tensors.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tessera::parallel {

/// What is recomputed: whole blocks, or only what is big and cheap in them (Korthikanti et al. 2022, "selective").
enum class CheckpointPart { block, attention, mlp };

/// "block" (also "full"), "attention" (also "attn", "selective"), "mlp". Throws InputError naming these.
CheckpointPart parse_checkpoint_part(const std::string& text);

struct CheckpointPlan {
  std::int64_t every = 1;  ///< blocks 0, every, 2 every, ...; at least 1
  /// ECMAScript regular expression that the whole name of a region must match ("transformer\\.h\\.[0-3]"); empty: all.
  std::string names = {};
  CheckpointPart part = CheckpointPart::block;
  bool preserve_random = true;
  bool early_stop = true;
  /// The regions' inputs, all that remains, go there: OffloadOptions::to. Empty: they stay.
  std::string offload_inputs_to = {};
};

/// Runs regions as a plan says. Thread-safe.
class ActivationCheckpointing {
 public:
  /// Throws InputError for a wrong plan.
  explicit ActivationCheckpointing(const CheckpointPlan& plan);

  bool chooses(const std::string& name, std::int64_t block, CheckpointPart part) const;
  /// f(x), checkpointed if chosen; f is copied and called again in backward. `name` as in the model's parameter names.
  at::Tensor run(const std::string& name, std::int64_t block, CheckpointPart part,
                 const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x) const;
  /// Bytes of inputs that were offloaded; zeros without offload_inputs_to.
  SavedBytes offloaded() const;

 private:
  CheckpointPlan plan_;
  Pattern names_;
  std::shared_ptr<SavedTensorPolicy> offload_;
};

}  // namespace tessera::parallel
