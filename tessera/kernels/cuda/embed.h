#pragma once
/// \file
/// Rows of tokens plus rows of their places, as one pass: the beginning of models whose positions are a table.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// y[r, :] = tokens[ids[r], :] + places[r % period, :], added in fp32.
struct EmbeddedSum {
  const std::int64_t* ids = nullptr;  ///< [rows]
  ConstReals tokens = {};             ///< [vocabulary, columns], contiguous
  ConstReals places = {};             ///< [period, columns], contiguous
  Reals y = {};                       ///< [rows, columns], contiguous, written
  std::int64_t vocabulary = 0, period = 1;
};
/// An id outside [0, vocabulary) stops the device, as at::embedding does there. Returns before the work is done, in the
/// order of `stream` (a cudaStream_t); throws std::runtime_error with CUDA's words when the launch fails.
void embedded_sum(const EmbeddedSum& a, std::int64_t rows, std::int64_t columns, void* stream);

}  // namespace tessera::kernels::cuda
