#pragma once
/// \file
/// Gives advice on batch size from a measured noise scale: gain and cost of a larger batch.
///
/// With the critical batch size B_c (rows), a goal that takes S_min steps of very large batches and D_min rows of tiny
/// ones takes S = S_min (1 + B_c / B) steps and D = D_min (1 + B / B_c) rows with batches of B (McCandlish et al. 2018,
/// equation 2.7); S_min B_c = D_min. One measured point, B_0 rows and S_0 steps, determines both.

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <vector>

namespace tessera::plan {

struct BatchQuestion {
  double critical_rows = 0;       ///< B_c
  std::int64_t rows = 0;          ///< B_0: rows per step of the known run
  std::int64_t steps = 0;         ///< S_0: steps of that run
  double learning_rate = 0;       ///< at B_0; 0: unknown
  std::int64_t warmup_steps = 0;  ///< at B_0
  BatchRule rule = BatchRule::square_root;
  double rows_per_second = 0;  ///< rows per second of one device; 0: unknown
  std::int64_t devices = 1;    ///< at B_0
};

struct BatchAdvice {
  std::int64_t rows = 0;
  double steps = 0, samples = 0;  ///< to the same loss
  double steps_saved = 0;         ///< share of B_0's steps
  double rows_wasted = 0;         ///< share of additional rows compared with B_0
  double learning_rate = 0;
  double warmup_steps = 0;  ///< same number of warm-up rows as at B_0
  double seconds = 0;       ///< with the number of devices scaled like the rows per step; 0: unknown
};

/// One entry for each number of rows. Throws InputError for numbers that are not positive.
std::vector<BatchAdvice> batch_advice(const BatchQuestion& question, const std::vector<std::int64_t>& rows);

}  // namespace tessera::plan
