#pragma once
/// \file
/// A global batch that grows while the run goes on, in one of Megatron-LM's two ways.
///
/// --rampup-batch-size START INCREMENT SAMPLES: the way from START to the full batch is cut into (full - START) /
/// INCREMENT equal parts of SAMPLES rows altogether: after c rows a step takes START + INCREMENT floor(c / (SAMPLES /
/// parts)) rows, and from SAMPLES on the full batch.
///
/// --step-batch-size-schedule "0:ROWS AFTER:ROWS ...": from AFTER consumed rows on a step takes ROWS; the last are the
/// full batch. (Megatron-LM counts AFTER in tokens, here it is rows.)

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout {

/// One entry of a list of steps.
struct BatchStep {
  std::int64_t after = 0, rows = 0;
  bool operator==(const BatchStep&) const = default;
};

struct BatchRamp {
  std::int64_t start = 0, increment = 0, samples = 0;
  std::vector<BatchStep> steps = {};  ///< the second way, and the numbers above say nothing; empty: the first
  bool operator==(const BatchRamp&) const = default;
};

/// "32,32,1000000", or "0:32 1000:64 2.5K:128" with K, M, B and T for 1e3, 1e6, 1e9 and 1e12; spaces and commas alike.
/// Throws InputError naming what is wrong: a first entry that is not from 0, entries that do not rise.
BatchRamp parse_batch_ramp(std::string_view text);

/// The text that parse_batch_ramp() reads as this.
std::string to_text(const BatchRamp& ramp);

/// Rows of the step that begins when `consumed` rows are done.
std::int64_t ramp_rows(const BatchRamp& ramp, std::int64_t full, std::int64_t consumed);

/// Throws InputError unless START <= full, INCREMENT divides full - START, and START and INCREMENT (of a list: all its
/// rows) are multiples of `ranks`, so that every step has whole rows for every rank, and a list ends with the full
/// batch.
void check_batch_ramp(const BatchRamp& ramp, std::int64_t full, std::int64_t ranks);

}  // namespace tessera::layout
