#pragma once
/// \file
/// What continues a training, in one folder: the module's parameters and buffers (model.safetensors, which transformers
/// could read, too), the optimizer's states (optimizer.safetensors), random.safetensors (every rank's generators),
/// state.json, further JSON files of the caller, and manifest.json with the checksums of all. Any number of ranks and
/// any strategy continues it. Of several modules the second has model_1.safetensors and optimizer_1.safetensors, and so
/// on, as Accelerate names them. Two forms:
///
///   SHARDED   every rank writes its part, straight to the disk: whole weights, dealt out so that each writes as many
///             bytes, and what it holds of the optimizer. Indexes say what is where (docs/checkpoints.md).
///   FULL      rank 0 writes everything, in whole tensors, as the others send their parts.

#include <tessera/base/value.h>
#include <tessera/faces/training.h>
#include <tessera/train/saving/saver.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::faces {

using JsonFiles = std::vector<std::pair<std::string, Value>>;  ///< file name, contents

/// Has SAVER save everything as it is now; what is computed afterwards is not in it. `contents` says where and in which
/// form; its small_files are set here. Who calls this goes on as train/saving/saver.h says: advance() or finish(),
/// while the trainings live. `trainings`, `state` and `files` as below. Collective.
void start_saving(const std::vector<Training*>& trainings, train::Saver& saver, train::SaveContents contents,
                  const Value& state, const JsonFiles& files = {});
/// FULL. Writes FOLDER.tmp and renames it when it is whole and on the disk; a folder of that name is replaced. `state`
/// is the caller's (rank 0's counts). `trainings`: at least one, of one group. Throws Error for weights or states that
/// are not finite. Collective; on failure every rank throws, and what was there before is unharmed.
void save_training(const std::vector<Training*>& trainings, const std::string& folder, const Value& state,
                   const JsonFiles& files = {});
inline void save_training(Training& training, const std::string& folder, const Value& state) {
  save_training(std::vector{&training}, folder, state);
}
/// SHARDED, or FULL where the first training's configuration says so (save_state_dict_type).
void save_training_as_configured(const std::vector<Training*>& trainings, const std::string& folder, const Value& state,
                                 const JsonFiles& files = {});
/// Of both forms. Checks every byte, then restores weights, optimizer, loss scale, schedule and this rank's
/// random numbers (of as many ranks as it was saved from; else a warning). Returns the caller's state. Throws
/// InputError for a folder that is not whole, of another model or of another number of them. `verified`: the ranks have
/// found every byte to be what was written (train/core/resume.h). Collective.
Value load_training(const std::vector<Training*>& trainings, const std::string& folder, bool with_optimizer = true,
                    bool with_random = true, bool verified = false);
inline Value load_training(Training& training, const std::string& folder, bool with_optimizer = true,
                           bool with_random = true, bool verified = false) {
  return load_training(std::vector{&training}, folder, with_optimizer, with_random, verified);
}
/// Why load_training() cannot go on from what a manifest lists; "": it can. For train/core/resume.h.
std::string why_not_resumable(const format::Manifest& manifest);
/// The caller's state alone, unverified; one of the caller's files. Throws InputError.
Value read_state(const std::string& folder);
Value read_json_file(const std::string& folder, const std::string& name);

/// Parameters and buffers: model.safetensors alone, or, larger than max_shard_bytes, model-00001-of-0000N.safetensors
/// and their index. Rank 0 writes them as the others send their parts; files of an older model go when all of these are
/// on the disk (train::ModelFolder). Collective; on failure every rank throws, and the older model is unharmed.
void save_weights(Training& training, const std::string& folder, std::int64_t max_shard_bytes);

}  // namespace tessera::faces
