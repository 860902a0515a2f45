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
  /// Tokens that every layer holds between two calls of the model, also those that are in other processes (pipelines).
  std::int64_t tokens() const { return tokens_; }
  /// A call of the model has ended, which added so many.
  void add_tokens(std::int64_t count) { tokens_ += count; }
  /// Forgets all but the first `count` tokens, of which there are at least so many: another text that begins with the
  /// same ones goes on from there.
  void keep(std::int64_t count);
  /// Adds keys and values [B, heads, T, D] to a layer and returns all of its own as views [B, heads, tokens, D].
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
