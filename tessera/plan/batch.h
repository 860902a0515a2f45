#pragma once
/// \file
/// Advice on the size of a batch, from a noise scale that was measured: what a larger one gains and costs.
///
/// With the critical batch size B_c (rows), a goal that takes S_min steps of endless batches and D_min rows of tiny
/// ones takes S = S_min (1 + B_c / B) steps and D = D_min (1 + B / B_c) rows with batches of B (McCandlish et al. 2018,
/// equation 2.7); S_min B_c = D_min. One point measured, B_0 rows and S_0 steps, fixes both.

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <vector>

namespace tessera::plan {

struct BatchQuestion {
  double critical_rows = 0;       ///< B_c
  std::int64_t rows = 0;          ///< B_0: rows per step of the run that is known
  std::int64_t steps = 0;         ///< S_0: those that it takes
  double learning_rate = 0;       ///< at B_0; 0: not known
  std::int64_t warmup_steps = 0;  ///< at B_0
  BatchRule rule = BatchRule::square_root;
  double rows_per_second = 0;  ///< that one device does; 0: not known
  std::int64_t devices = 1;    ///< at B_0
};

struct BatchAdvice {
  std::int64_t rows = 0;
  double steps = 0, samples = 0;  ///< to the same loss
  double steps_saved = 0;         ///< share of B_0's steps
  double rows_wasted = 0;         ///< share by which it takes more rows than B_0
  double learning_rate = 0;
  double warmup_steps = 0;  ///< as many rows of warm-up as at B_0
  double seconds = 0;       ///< with so many devices more as rows per step; 0: not known
};

/// One for each number of rows. Throws InputError for numbers that are not positive.
std::vector<BatchAdvice> batch_advice(const BatchQuestion& question, const std::vector<std::int64_t>& rows);

}  // namespace tessera::plan
