#pragma once
/// \file
/// Converts weights saved by PyTorch to tensors for model.safetensors: from a torch.save file (pytorch_model.bin,
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

/// The weights read. When this is returned, everything in the files except the tensors' bytes has been checked.
struct TorchWeights {
  /// these keep their files open; dtypes are as saved; bytes are checked when requested
  std::vector<TensorSource> tensors;
  /// omitted tensors: name, and the tensor whose memory it shares
  std::vector<std::pair<std::string, std::string>> tied;
  std::vector<std::string> left_aside;  ///< values that are not weights: numbers, texts, other groups
  std::string group;                    ///< the selected group of nested dicts, e.g. "model"
  std::uint64_t parameters = 0, bytes = 0;
};

/// Whether read_torch_weights accepts the path.
bool is_torch_weights(const std::string& path);

/// `group`: the nested dict to read (its name is removed from the tensors' names); empty: "model", "module",
/// "state_dict" or "model_state_dict" if one of them exists, otherwise the only group. `keep_tied`: write every tensor
/// that shares memory. Throws InputError for missing or unreadable files, an index that points outside its folder or to
/// missing tensors, and an ambiguous group.
TorchWeights read_torch_weights(const std::string& path, const std::string& group = "", bool keep_tied = false);

}  // namespace tessera::format
