#pragma once
/// \file
/// Weights that PyTorch saved, as tensors to write to model.safetensors: a file of torch.save (pytorch_model.bin,
/// *.pt), a folder with pytorch_model.bin or its index, or a folder of torch.distributed.checkpoint (FSDP's
/// SHARDED_STATE_DICT).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/format/safetensors/safetensors.h>

namespace tessera::format {

/// Everything that can be wrong with the files but damage of the tensors' bytes has been found once this exists.
struct TorchWeights {
  std::vector<TensorSource> tensors;  ///< their files are open while these exist; dtypes as saved. A tensor's bytes are
                                      ///< checked when they are asked for
  std::vector<std::pair<std::string, std::string>> tied;  ///< left out: name, and the one that has the same memory
  std::vector<std::string> left_aside;                    ///< what is no weight: numbers, texts, other groups
  std::string group;                                      ///< the one of nested dicts that was taken: "model"
  std::uint64_t parameters = 0, bytes = 0;
};

/// Whether the path is something that read_torch_weights reads.
bool is_torch_weights(const std::string& path);

/// `group`: of nested dicts, which one (its name is taken off the tensors' names); empty: "model", "module",
/// "state_dict" or "model_state_dict" when there is one of them, else the only one. `keep_tied`: tensors that share
/// memory are written each. Throws InputError: files that are missing or cannot be read, an index that points outside
/// of its folder or at tensors that are not there, several groups.
TorchWeights read_torch_weights(const std::string& path, const std::string& group = "", bool keep_tied = false);

}  // namespace tessera::format
