#pragma once
/// \file
/// --grad_compression, parsed: checked when settings are resolved, implemented by parallel/compression.

#include <cstdint>
#include <string_view>

namespace tessera::layout {

/// The representation that is sent instead of float32 gradients.
enum class CompressionMethod : unsigned char { none, fp16, bf16, powersgd, topk, onebit };

/// PowerSGD (Vogels et al. 2019).
struct PowerSgdOptions {
  std::int64_t rank = 1;       ///< columns of the two factors of a matrix
  std::int64_t start = 1000;   ///< steps before the first compressed one
  bool error_feedback = true;  ///< the part not sent is added to the next gradient
  bool warm_start = true;      ///< start from the previous step's Q instead of a random one
  /// Compresses only matrices that shrink by more than this factor.
  double min_rate = 2;
};

/// A method and its parameters; parameters of other methods have no effect.
struct GradientCompression {
  CompressionMethod method = CompressionMethod::none;  ///< none: float32, or reduce_dtype
  PowerSgdOptions powersgd = {};                       ///< parameters of powersgd
  double topk_ratio = 0.01;                            ///< share of the elements that are sent, (0, 1]
  std::int64_t onebit_warmup = 100;                    ///< steps before the first compressed one

  std::int64_t whole_steps() const;  ///< number of initial steps whose gradients are sent uncompressed
};

/// METHOD or METHOD:NAME=VALUE,...
///   none fp16 bf16
///   powersgd   rank=1, start=1000, error_feedback=true, warm_start=true, min_rate=2
///   topk       ratio=0.01
///   onebit     warmup=100
/// Throws InputError for other methods and settings (with the nearest one) and for values out of range.
GradientCompression parse_gradient_compression(std::string_view description);

}  // namespace tessera::layout
