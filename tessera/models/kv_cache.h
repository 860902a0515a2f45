#pragma once
/// \file
/// Keys and values of the tokens that a model has seen, for generation.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::models {

/// Made empty; filled layer by layer in hidden(). Memory doubles when it is full, so appending is O(1) on average.
class KvCache {
 public:
  /// Tokens that the layers hold (all the same number between two calls of the model).
  std::int64_t tokens() const { return layers_.empty() ? 0 : layers_[0].tokens; }
  /// Tokens that one layer holds, also while the model runs.
  std::int64_t tokens(std::size_t layer) const { return layer < layers_.size() ? layers_[layer].tokens : 0; }
  /// Adds keys and values [B, heads, T, D] to a layer and returns all of its own as views [B, heads, tokens, D].
  std::pair<at::Tensor, at::Tensor> append(std::size_t layer, const at::Tensor& keys, const at::Tensor& values);

 private:
  struct Layer {
    at::Tensor keys, values;  // [B, heads, capacity, D]
    std::int64_t tokens = 0;
  };
  std::vector<Layer> layers_;
};

}  // namespace tessera::models
