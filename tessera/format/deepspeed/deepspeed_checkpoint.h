#pragma once
/// \file
/// format/deepspeed/: converts checkpoints of DeepSpeed's ZeRO stages 1, 2 and 3 to weights for model.safetensors, as
/// zero_to_fp32.py does. DIR/latest names a folder TAG that contains (W ranks)
///   mp_rank_00_model_states.pt (stages 1, 2) or zero_pp_rank_R_mp_rank_00_model_states.pt (stage 3, one per rank):
///     names and shapes of the parameters by group, buffers, frozen parameters, tied parameters;
///   [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt: rank R's part of the fp32 weights, one flat tensor per group.
/// Stages 1 and 2: a group's parameters are concatenated, cut into W parts, and padded at the end to a multiple of 2 W
/// (the padding may or may not be stored). Stage 3: each parameter is cut into W parts of ceil(n / W) elements, the
/// last ones padded; a rank's groups contain its parts one after another. BF16_Optimizer (stage 1 in bf16, gradients in
/// fp32), whose checkpoints zero_to_fp32.py refuses, writes the stage 1 layout without the stage number. All files are
/// written by torch.save and read as data (pickle.h): objects of unknown classes are neither constructed nor inspected.
///
/// Source: deepspeed/utils/zero_to_fp32.py, runtime/engine.py (_common_checkpoint_state, _get_zero_param_shapes),
/// runtime/zero/stage_1_and_2.py and stage3.py (state_dict) of DeepSpeed 0.19.8.

#include <string>

#include <tessera/format/deepspeed/deepspeed_files.h>
#include <tessera/format/deepspeed/deepspeed_states.h>
#include <tessera/format/torch/torch_to_hf.h>

namespace tessera::format {

/// Whether the folder has `latest` or files *_optim_states.pt, i.e. read_deepspeed_checkpoint either reads it or
/// reports why it cannot.
bool is_deepspeed_checkpoint(const std::string& folder);

/// `folder`: the one with `latest`, or TAG itself. Trained parameters are returned as the optimizer stores them (fp32),
/// frozen ones as stored, fp16 and bf16 buffers as fp32. `keep_tied`: returns every tied parameter; otherwise
/// TorchWeights::tied lists them. The bytes of a tensor are valid until those of another tensor are requested. No
/// memory is allocated for sizes that the files do not contain. Throws InputError naming file, tensor, rule and
/// numbers: a rank's file that is missing, from another run or not a regular file; ranks that disagree about stage,
/// groups or types; sizes that do not add up; overlapping parts; duplicate names; and unsupported checkpoints: tensor
/// or pipeline parallelism, experts, stage 0.
TorchWeights read_deepspeed_checkpoint(const std::string& folder, bool keep_tied = false);

/// Reads files that have already been found and opened (deepspeed::list_states, deepspeed::open_state).
TorchWeights read_deepspeed_checkpoint(const deepspeed::Folder& folder, const deepspeed::OpenState& open,
                                       bool keep_tied = false);

}  // namespace tessera::format
