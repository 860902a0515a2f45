#pragma once
/// \file
/// What continues a training, in one folder: model.safetensors (what transformers could read, too),
/// optimizer.safetensors, random.safetensors (every rank's generators), state.json, further JSON files of the caller,
/// and manifest.json with the checksums of all, written last. Whole tensors, gathered one by one: any number of ranks
/// and any strategy continues it. Of several modules the second has model_1.safetensors and optimizer_1.safetensors, and
/// so on, as Accelerate names them.

#include <tessera/base/value.h>
#include <tessera/engine/training.h>
#include <tessera/train/saver.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::engine {

using JsonFiles = std::vector<std::pair<std::string, Value>>;  ///< file name, contents

/// Writes the folder beside itself and renames it when it is whole; one of that name is replaced. `state` is the
/// caller's (rank 0's counts). `trainings`: at least one, of one group. Collective; on failure every rank throws.
void save_training(const std::vector<Training*>& trainings, const std::string& folder, const Value& state,
                   const JsonFiles& files = {});
inline void save_training(Training& training, const std::string& folder, const Value& state) {
  save_training(std::vector{&training}, folder, state);
}
/// The same, SHARDED: SAVER's OUT/checkpoint-STEP, in which every rank has written what it holds (train/saver.h), beside
/// it untrained.safetensors with frozen parameters and buffers, if there are any. Returns when it is there. The update
/// must have an own_optimizer(). Collective; on failure every rank throws, and what was there before is unharmed.
void save_training_parts(Training& training, train::Saver& saver, std::int64_t step, const Value& state);
/// Of both kinds of folder. Checks every byte, then restores weights, optimizer, loss scale, schedule and this rank's
/// random numbers (of as many ranks as it was saved from; else a warning). Returns the caller's state. Throws InputError
/// for a folder that is not whole, of another model or of another number of them. Collective.
Value load_training(const std::vector<Training*>& trainings, const std::string& folder, bool with_optimizer = true,
                    bool with_random = true);
inline Value load_training(Training& training, const std::string& folder, bool with_optimizer = true,
                           bool with_random = true) {
  return load_training(std::vector{&training}, folder, with_optimizer, with_random);
}
/// The caller's state alone, unverified; one of the caller's files. Throws InputError.
Value read_state(const std::string& folder);
Value read_json_file(const std::string& folder, const std::string& name);

/// model.safetensors alone, or, larger than max_shard_bytes, model-00001-of-0000N.safetensors and their index; files of
/// former saves are removed. Collective.
void save_weights(Training& training, const std::string& folder, std::int64_t max_shard_bytes);

}  // namespace tessera::engine
