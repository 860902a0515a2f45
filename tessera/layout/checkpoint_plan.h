#pragma once
/// \file
/// Selection of the regions of a model's blocks that are recomputed in backward: parsed settings for trainer and
/// planner.

#include <cstdint>
#include <string>

namespace tessera::layout {

/// The recomputed region: whole blocks, or only their large and cheap parts (Korthikanti et al. 2022, "selective").
enum class CheckpointPart { block, attention, mlp };

/// Parses "block" (also "full"), "attention" (also "attn", "selective") or "mlp". Throws InputError listing these.
CheckpointPart parse_checkpoint_part(const std::string& text);

struct CheckpointPlan {
  std::int64_t every = 1;  ///< blocks 0, every, 2 every, ...; at least 1
  /// Pattern (base/names/pattern.h) that the whole name of a region must match ("transformer\\.h\\.[0-3]"); empty: all.
  std::string names = {};
  CheckpointPart part = CheckpointPart::block;
  bool preserve_random = true;
  bool early_stop = true;
  /// Folder or place that the regions' inputs, the only activations kept, are offloaded to (OffloadOptions::to). Empty:
  /// not offloaded.
  std::string offload_inputs_to = {};
};

}  // namespace tessera::layout
