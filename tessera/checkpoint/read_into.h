#pragma once
/// \file
/// Weights from a Hugging Face folder straight into tensors that exist already.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include <tessera/format/safetensors_index.h>

namespace tessera::checkpoint {

/// The weights of a model folder, headers checked. Throws InputError when it holds none; a pickled pytorch_model.bin is
/// named and not read.
format::SafetensorsFolder open_hf_weights(const std::string& folder);

/// One tensor of a folder and where it goes: a contiguous CPU tensor of the same shape, or a view that is contiguous.
struct Placement {
  const format::SafetensorsFolder::Stored* stored;
  at::Tensor target;
};

/// Reads them all, in pieces of 16 MiB on as many threads as LibTorch uses. Where the file's type is the target's, bytes
/// go from the file to their place by pread, without a copy in between (and without the page faults of a mapping); else
/// they are converted from the mapping. A file that ends early throws InputError, a failing read Error.
void read_into(const format::SafetensorsFolder& folder, const std::vector<Placement>& placements);

}  // namespace tessera::checkpoint
