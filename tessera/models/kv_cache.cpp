#include <tessera/models/kv_cache.h>

#include <ATen/ATen.h>

#include <algorithm>

#include <tessera/base/error.h>

namespace tessera::models {
namespace {

constexpr std::int64_t least_capacity = 256;

/// A copy of `old` [B, heads, capacity, D] with room for `capacity` tokens; the first `tokens` are kept.
at::Tensor grown(const at::Tensor& old, std::int64_t tokens, std::int64_t capacity, const at::Tensor& like) {
  at::Tensor fresh = at::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
  if (tokens > 0) fresh.narrow(2, 0, tokens).copy_(old.narrow(2, 0, tokens));
  return fresh;
}

}  // namespace

void KvCache::keep(std::int64_t count) {
  TESSERA_CHECK(count >= 0 && count <= tokens_, count, " of ", tokens_, " tokens");
  for (Layer& layer : layers_) layer.tokens = std::min(layer.tokens, count);
  tokens_ = count;
}

std::pair<at::Tensor, at::Tensor> KvCache::append(std::size_t layer, const at::Tensor& keys, const at::Tensor& values) {
  if (layer >= layers_.size()) layers_.resize(layer + 1);
  Layer& own = layers_[layer];
  const std::int64_t tokens = own.tokens + keys.size(2);
  if (!own.keys.defined() || tokens > own.keys.size(2)) {
    const std::int64_t capacity = std::max(least_capacity, 2 * tokens);
    own.keys = grown(own.keys, own.tokens, capacity, keys);
    own.values = grown(own.values, own.tokens, capacity, values);
  }
  own.keys.narrow(2, own.tokens, keys.size(2)).copy_(keys);
  own.values.narrow(2, own.tokens, values.size(2)).copy_(values);
  own.tokens = tokens;
  return {own.keys.narrow(2, 0, tokens), own.values.narrow(2, 0, tokens)};
}

}  // namespace tessera::models
