#pragma once
/// \file
/// Which regions of a model's blocks are computed again in the backward pass, as settings say it: what the trainer runs
/// and the planner counts.

#include <cstdint>
#include <string>

namespace tessera::layout {

/// What is recomputed: whole blocks, or only what is big and cheap in them (Korthikanti et al. 2022, "selective").
enum class CheckpointPart { block, attention, mlp };

/// "block" (also "full"), "attention" (also "attn", "selective"), "mlp". Throws InputError naming these.
CheckpointPart parse_checkpoint_part(const std::string& text);

struct CheckpointPlan {
  std::int64_t every = 1;  ///< blocks 0, every, 2 every, ...; at least 1
  /// Pattern (base/names/pattern.h) that the whole name of a region must match ("transformer\\.h\\.[0-3]"); empty: all.
  std::string names = {};
  CheckpointPart part = CheckpointPart::block;
  bool preserve_random = true;
  bool early_stop = true;
  /// The regions' inputs, all that remains, go there: OffloadOptions::to. Empty: they stay.
  std::string offload_inputs_to = {};
};

}  // namespace tessera::layout
