#pragma once
/// \file
/// The weights in the ranks' files *_optim_states.pt: flat fp32 tensors, by group. Errors are InputErrors that name the
/// file. Source: deepspeed/utils/zero_to_fp32.py (parse_optim_states), runtime/zero/stage_1_and_2.py (state_dict) and
/// stage3.py (_rigid_state_dict), runtime/bf16_optimizer.py (state_dict) and checkpoint/ds_to_universal.py of DeepSpeed
/// 0.19.8.

#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/format/deepspeed/deepspeed_files.h>
#include <tessera/format/deepspeed/deepspeed_states.h>

namespace tessera::format::deepspeed {

/// One rank's file.
struct Rank {
  std::shared_ptr<StateFile> file;
  std::int64_t stage = 0;
  std::int64_t ranks = 0;           ///< number of ranks over which the groups are divided
  std::vector<TorchTensor> groups;  ///< flat, contiguous, of one dtype, without shared bytes; at least one
  /// Padding elements after each parameter, by group; empty: not recorded.
  std::vector<std::vector<std::int64_t>> alignments;
};

/// Reads all ranks' files, which must be complete and come from one run (same stage, number of ranks and groups,
/// dtype).
std::vector<Rank> read_ranks(const Folder& folder, const OpenState& open);

}  // namespace tessera::format::deepspeed
