#pragma once
/// \file
/// Dropout by position: whether an element is dropped is a function of the pass and of the element's position in the
/// whole computation (layer, row, token, column). It does not depend on the process that computes it, the order of
/// computation, or earlier draws. Any mesh, any number of micro-batches and any recomputation drop the same elements.
/// The mask is never stored: backward computes it again.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::nn {

/// The position of an activation's elements [B, t, C]. A value; models get it from models::ForwardContext.
struct RandomPlace {
  std::uint64_t key = 0;   ///< identifies the pass and, after at(), the draw
  std::int64_t row = 0;    ///< number of the first of the B rows among all that share the key
  std::int64_t token = 0;  ///< index of the first token in `tokens`
  /// The position in its row of each token; null: 0, 1, 2, ...
  std::shared_ptr<const std::vector<std::int64_t>> tokens = nullptr;
  std::int64_t column = 0;  ///< the first column
  std::int64_t head = 0;    ///< the first head, for attention weights
  /// While a step is captured: the arguments of at() since the pass began; null: none yet.
  std::shared_ptr<const std::vector<std::uint64_t>> numbers = nullptr;

  /// The same position for the draw with this number: every dropout of a pass has its own number.
  RandomPlace at(std::uint64_t number) const;
  std::int64_t position(std::int64_t local_token) const {
    return tokens ? (*tokens)[static_cast<std::size_t>(token + local_token)] : token + local_token;
  }  ///< the position of a token in its row
};

/// x, each element set to 0 with probability p, else divided by 1 - p. x [B, t, C] or [B, C] (one token per row), of
/// any floating type and device (drawn there if it has kernels; the same elements everywhere). Differentiable. p = 0: x
/// itself. Throws Error for p outside [0, 1] and other shapes.
at::Tensor dropout(const at::Tensor& x, double p, const RandomPlace& place);

/// Uniform numbers in [0, 1), fp32 [B, t, C] on `device`; the same numbers on every device.
at::Tensor uniform(std::int64_t rows, std::int64_t tokens, std::int64_t columns, const RandomPlace& place,
                   c10::Device device);

/// A key from the CPU's default generator, for a pass without a given key.
std::uint64_t drawn_key();

}  // namespace tessera::nn
