#pragma once
/// \file
/// Keys and values of the tokens that a model has processed, for generation.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::models {

/// Empty at first; filled layer by layer in hidden(). The memory doubles when it is full, so appending is O(1) on
/// average.
class KvCache {
 public:
  /// Tokens in every layer between two calls of the model, including layers in other processes (pipelines).
  std::int64_t tokens() const { return tokens_; }
  /// Records that a call of the model has added `count` tokens.
  void add_tokens(std::int64_t count) { tokens_ += count; }
  /// Keeps only the first `count` tokens (at least that many must exist), so that another text with the same beginning
  /// can continue.
  void keep(std::int64_t count);
  /// Appends keys and values [B, heads, T, D] to a layer; returns all keys and values of the layer as views [B, heads,
  /// tokens, D].
  std::pair<at::Tensor, at::Tensor> append(std::size_t layer, const at::Tensor& keys, const at::Tensor& values);

 private:
  struct Layer {
    at::Tensor keys, values;  // [B, heads, capacity, D]
    std::int64_t tokens = 0;
  };
  std::vector<Layer> layers_;
  std::int64_t tokens_ = 0;
};

}  // namespace tessera::models
