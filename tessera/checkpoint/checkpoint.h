#pragma once
/// \file
/// checkpoint/: tensors on disk. This header: a run's checkpoint-N folder: a Hugging Face model folder that also
/// resumes the run.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/text/tokenizer.h>

namespace tessera::checkpoint {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
/// Tensors to write that may be made one by one when their turn comes (tensor_bridge.h, format::sort_for_writing).
using TensorSources = std::vector<format::TensorSource>;
TensorSources sources_of(const NamedTensors& tensors);

/// Reads every tensor of model.safetensors (or of the shards that model.safetensors.index.json lists; an index may not
/// point outside the folder). Tensors are CPU copies in the file's dtype, in file order (of an index: its own order).
/// Throws InputError when the folder holds neither, or a file is damaged, or index and shards disagree.
NamedTensors read_hf_weights(const std::string& folder);
/// Writes config.json, model.safetensors, generation_config.json and the tokenizer's files into an existing folder.
/// Tensors may be on any device and of any strides; they are written contiguous, in their own dtype. `tokenizer` may be
/// nullptr.
void write_hf_folder(const std::string& folder, const NamedTensors& weights, const Value& config,
                     const text::Tokenizer* tokenizer);

/// What resumes a run besides the weights.
struct RunState {
  std::int64_t step = 0;     ///< optimizer steps done
  std::int64_t samples = 0;  ///< blocks consumed: the data position
  std::uint64_t seed = 0;
  std::vector<Value> log_history;  ///< as Hugging Face's trainer_state.json
  std::int64_t optimizer_steps = 0;
  double loss_scale = 0;  ///< of fp16; 0: there is none
  std::int64_t loss_scale_good_steps = 0, loss_scale_skipped_steps = 0, loss_scale_hysteresis = 0;
  Value schedule_state = {};  ///< of a schedule that has one (reduce_lr_on_plateau), else null; restored as it is
  bool model_only = false;    ///< only what a model user needs is written; such a checkpoint cannot be resumed

  std::optional<double> best_metric = {};  ///< of the evaluations so far; empty: none counted
  std::int64_t best_step = -1;             ///< where it was reached
  std::string best_model_checkpoint = {};  ///< the checkpoint of a best step, which is never pruned; empty: none

  // What Hugging Face's trainer_state.json tells besides; nothing of it is needed to resume.
  double epoch = 0;
  std::int64_t max_steps = 0;
  double num_train_epochs = 0;
  std::int64_t train_batch_size = 0;  ///< rows per rank and micro-batch; 0: not said
  std::int64_t logging_steps = 0, eval_steps = 0, save_steps = 0;
  std::int64_t num_input_tokens_seen = 0;
  double total_flos = 0;  ///< floating-point operations of the model since step 0

  // Who wrote it, for people and tools; any configuration and any number of ranks can resume it. Null: not said.
  Value configuration = {};  ///< config/core/stored.h
  Value mesh = {};           ///< {"ranks", "strategy", "shard_ranks", "replicate_ranks"}
};

/// The state of a verified checkpoint; the optimizer's tensors stay in their files (stored_state.h).
RunState read_run_state(const std::string& folder);

}  // namespace tessera::checkpoint
