#pragma once
/// \file
/// Adds token and position embeddings in one pass: the first operation of models with a position table.

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
/// An id outside [0, vocabulary) traps on the device, as in at::embedding. Returns before the work is done, on `stream`
/// (a cudaStream_t); throws std::runtime_error with CUDA's message when the launch fails.
void embedded_sum(const EmbeddedSum& a, std::int64_t rows, std::int64_t columns, void* stream);

}  // namespace tessera::kernels::cuda
