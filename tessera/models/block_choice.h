#pragma once
/// \file
/// A model that begins with some of another one's blocks (layer reduction: Fan et al. 2019, DeepSpeed's
/// compression_training).

#include <tessera/base/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::models {

/// Which weights of a folder a smaller model begins with; all others are as if there was no folder.
struct BlockChoice {
  std::string prefix;                ///< what names of blocks begin with: "bert.encoder.layer"
  std::vector<std::int64_t> blocks;  ///< block i of the model is block blocks[i] of the folder; all different
  std::vector<std::string> others;   ///< modules outside of the blocks that are taken over: "bert.embeddings"

  /// The folder's config.json with so many blocks. Throws InputError for blocks that the folder does not have.
  Value smaller(Value hf_config) const;
  /// What the folder's parameter of this name is called in the model; nothing: it is not taken over.
  std::optional<std::string> renamed(const std::string& name) const;
  /// Whether a parameter of the model with this name is taken over.
  bool takes(const std::string& name) const;
};

}  // namespace tessera::models
