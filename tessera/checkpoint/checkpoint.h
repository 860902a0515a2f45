#pragma once
/// \file
/// checkpoint/: tensors on disk. This header: a run's checkpoint-N folder: a Hugging Face model folder from which the
/// run can be resumed.

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/checkpoint/run_state.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/text/tokenizer.h>

namespace tessera::checkpoint {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
/// Tensors to write, which may be created one at a time when needed (tensor_bridge.h, format::sort_for_writing).
using TensorSources = std::vector<format::TensorSource>;
TensorSources sources_of(const NamedTensors& tensors);

/// Reads every tensor of model.safetensors (or of the shards listed in model.safetensors.index.json; an index must not
/// point outside the folder). Tensors are CPU copies in the file's dtype, in file order (with an index: in its order).
/// Throws InputError if the folder contains neither, a file is damaged, or index and shards disagree.
NamedTensors read_hf_weights(const std::string& folder);
/// Writes config.json, model.safetensors, generation_config.json and the tokenizer's files into an existing folder.
/// Tensors may be on any device and have any strides; they are written contiguously, in their own dtype. `tokenizer`
/// may be nullptr, and `preprocessor` (preprocessor_config.json) null; `generation` is the text of
/// generation_config.json; empty: derived from config.json.
void write_hf_folder(const std::string& folder, const NamedTensors& weights, const Value& config,
                     const text::Tokenizer* tokenizer, const Value& preprocessor = {},
                     const std::string& generation = {});

}  // namespace tessera::checkpoint
