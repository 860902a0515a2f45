#pragma once
/// \file
/// The folder from which a run resumes: the module's parameters and buffers (model.safetensors, which transformers
/// can read as well), the optimizer's states (optimizer.safetensors), random.safetensors (every rank's generators),
/// tessera_state.json (checkpoint/run_state.h), further JSON files of the caller, and manifest.json with the checksums.
/// Any number of ranks and any strategy can resume from it. With several modules the second one's files are
/// model_1.safetensors and optimizer_1.safetensors, and so on, as in Accelerate. Two forms:
///
///   SHARDED   every rank writes its part directly to disk: whole weights, distributed so that each rank writes about
///             the same number of bytes, and its part of the optimizer. Indexes list the pieces (docs/checkpoints.md).
///   FULL      rank 0 writes everything as whole tensors, as the others send their parts.

#include <tessera/base/value.h>
#include <tessera/checkpoint/run_state.h>
#include <tessera/faces/training.h>
#include <tessera/train/saving/saver.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::faces {

using JsonFiles = std::vector<std::pair<std::string, Value>>;  ///< file name, contents

/// Fills `contents` with a snapshot of the current state: its small_files on rank 0, and the models. `state`: the
/// caller's own counters (rank 0's are written). `trainings`: at least one, of one group; they must outlive the save.
/// Collective.
std::vector<train::SavedModel> fill(train::SaveContents& contents, const std::vector<Training*>& trainings,
                                    checkpoint::RunState state, const JsonFiles& files = {});
/// Saves the same contents, without trainer_state.json, in a folder that is complete when this returns. Writes
/// FOLDER.tmp and renames it when it is complete and on disk; replaces a folder of that name. `full`: the form. Throws
/// Error for weights or states that are not finite. Collective; on failure every rank throws, and the previous contents
/// are unharmed.
void save_training(const std::vector<Training*>& trainings, const std::string& folder, bool full,
                   checkpoint::RunState state, const JsonFiles& files = {});
/// Reads both forms. Checks every byte, then restores weights, optimizer, loss scale, schedule and this rank's random
/// numbers (if the number of ranks is the same; otherwise warns). Throws InputError for a folder that is incomplete, of
/// a different model or of a different number of models. `verified`: the ranks have already verified every byte
/// (train/core/resume.h). Collective.
checkpoint::RunState load_training(const std::vector<Training*>& trainings, const std::string& folder,
                                   bool with_optimizer = true, bool with_random = true, bool verified = false);
/// Returns why load_training() cannot resume from the files of a manifest; "" if it can. For train/core/resume.h.
std::string why_not_resumable(const format::Manifest& manifest);
/// Writes parameters and buffers: a single model.safetensors or, beyond max_shard_bytes,
/// model-00001-of-0000N.safetensors and their index. Rank 0 writes them as the others send their parts; files of an
/// older model are removed when all of these are on disk (train::ModelFolder). Collective; on failure every rank
/// throws, and the older model is unharmed.
void save_weights(Training& training, const std::string& folder, std::int64_t max_shard_bytes);

}  // namespace tessera::faces
