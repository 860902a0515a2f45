#pragma once
// Writes checkpoint-STEP of one process with the functions of the training's writer, without a training run.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/checkpoint/stored_state.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/manifest/manifest.h>

#include <ATen/ATen.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::checkpoint {

/// Writes through checkpoint-STEP.tmp.PID and returns checkpoint-STEP. `optimizer`: unused if state.model_only.
inline std::string save_step_folder(const std::string& output_dir, const RunState& state, const NamedTensors& optimizer,
                                    std::int64_t keep,
                                    const std::function<WrittenFiles(const std::string& folder)>& write_model) {
  remove_stale_folders(output_dir);
  const std::string written = writing_folder(output_dir, state.step, ::getpid()),
                    saved = step_folder(output_dir, state.step);
  make_folders(written);
  try {
    format::Manifest manifest{state.step, write_model(written)};
    for (const format::ManifestFile& file : write_run_state(written, state)) manifest.files.push_back(file);
    if (!state.model_only) manifest.files.push_back(write_tensors_file(written, kOptimizerFile, sources_of(optimizer)));
    format::write_manifest(written, manifest);
    publish_written_folder(written, saved);
  } catch (...) {
    remove_tree(written);
    throw;
  }
  prune_step_folders(output_dir, state.step, keep, state.best_model_checkpoint);
  return saved;
}

inline std::string save_checkpoint(const std::string& output_dir, const NamedTensors& weights, const Value& config,
                                   const text::Tokenizer* tokenizer, const RunState& state,
                                   const NamedTensors& optimizer, std::int64_t keep) {
  return save_step_folder(output_dir, state, optimizer, keep, [&](const std::string& folder) {
    WrittenFiles files = write_hf_settings(folder, config, tokenizer);
    files.push_back(write_tensors_file(folder, kWeightsFile, sources_of(weights)));
    return files;
  });
}

/// Throws InputError unless a run can resume from it.
inline void verify_checkpoint(const std::string& folder) {
  const Finding finding = examine(folder, {});
  if (finding.kind != Finding::Kind::whole) throw InputError(finding.text);
}

/// Reads a whole state of the optimizer.
inline at::Tensor read_state(const std::string& folder, const std::string& name) {
  const StoredState states(folder);
  const format::StoredTensor& stored = *states.find(name);
  const at::Tensor value = at::empty(stored.shape, at::TensorOptions().dtype(scalar_type(stored.dtype)));
  states.read(name, 0, value);
  return value;
}

}  // namespace tessera::checkpoint
