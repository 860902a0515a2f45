#pragma once
/// \file
/// format/deepspeed/: checkpoints of DeepSpeed's ZeRO stages 1, 2 and 3, as weights to write to model.safetensors: what
/// zero_to_fp32.py makes of them. DIR/latest names a folder TAG, in it (W ranks)
///   mp_rank_00_model_states.pt (stages 1, 2) or zero_pp_rank_R_mp_rank_00_model_states.pt (stage 3, of each rank):
///     names and shapes of the parameters by group, buffers, frozen parameters, tied ones;
///   [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt: rank R's part of the fp32 weights, one flat tensor by group.
/// Stages 1 and 2: a group's parameters one behind the other, cut into W parts, padded at the end to a multiple of 2 W
/// (the padding may or may not be stored). Stage 3: each parameter is cut into W parts of ceil(n / W) elements, the
/// last ones padded; a rank's groups hold its parts one behind the other. BF16_Optimizer (stage 1 in bf16, gradients in
/// fp32), whose checkpoints zero_to_fp32.py refuses, writes those of stage 1 without the number. All files are
/// torch.save's, read as data (pickle.h): objects of unknown classes are neither made nor looked at.
///
/// Source: deepspeed/utils/zero_to_fp32.py, runtime/engine.py (_common_checkpoint_state, _get_zero_param_shapes),
/// runtime/zero/stage_1_and_2.py and stage3.py (state_dict) of DeepSpeed 0.19.8.

#include <string>

#include <tessera/format/deepspeed/deepspeed_files.h>
#include <tessera/format/deepspeed/deepspeed_states.h>
#include <tessera/format/torch/torch_to_hf.h>

namespace tessera::format {

/// Whether the folder has `latest` or files *_optim_states.pt: something that read_deepspeed_checkpoint reads, or says
/// why not.
bool is_deepspeed_checkpoint(const std::string& folder);

/// `folder`: the one with `latest`, or TAG itself. Trained parameters come as the optimizer has them (fp32), frozen
/// ones as they are stored, buffers in fp16 or bf16 as fp32. `keep_tied`: tied parameters are written each, else
/// TorchWeights::tied names them. The span of a tensor's bytes is valid until another one's are asked for. Nothing is
/// allocated for a size that the files do not hold. Throws InputError naming file, tensor, rule and numbers: a rank's
/// file that is missing, of another run or no regular file, ranks that disagree about stage, groups or types, sizes
/// that do not add up, parts that overlap, names that occur twice; and for what is not read: tensor or pipeline
/// parallelism, experts, stage 0.
TorchWeights read_deepspeed_checkpoint(const std::string& folder, bool keep_tied = false);

/// Reads files that are found and opened already (deepspeed::list_states, deepspeed::open_state).
TorchWeights read_deepspeed_checkpoint(const deepspeed::Folder& folder, const deepspeed::OpenState& open,
                                       bool keep_tied = false);

}  // namespace tessera::format
