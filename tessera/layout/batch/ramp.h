#pragma once
/// \file
/// A global batch that grows during the run, in one of Megatron-LM's two forms.
///
/// --rampup-batch-size START INCREMENT SAMPLES: grows from START to the full batch in (full - START) / INCREMENT equal
/// parts, which take SAMPLES rows in total. After c rows, a step takes START + INCREMENT floor(c / (SAMPLES / parts))
/// rows; from SAMPLES on, it takes the full batch.
///
/// --step-batch-size-schedule "0:ROWS AFTER:ROWS ...": after AFTER consumed rows a step takes ROWS; the last entry is
/// the full batch. (Megatron-LM counts AFTER in tokens; here it counts rows.)

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout {

/// One entry of a step list.
struct BatchStep {
  std::int64_t after = 0, rows = 0;
  bool operator==(const BatchStep&) const = default;
};

struct BatchRamp {
  std::int64_t start = 0, increment = 0, samples = 0;
  std::vector<BatchStep> steps = {};  ///< entries of the second form, which ignores the numbers above; empty: the first
                                      ///< form
  bool operator==(const BatchRamp&) const = default;
};

/// Parses "32,32,1000000", or "0:32 1000:64 2.5K:128" with K, M, B and T for 1e3, 1e6, 1e9 and 1e12, separated by
/// spaces or commas. Throws InputError naming the error, such as a first entry that does not start at 0, or entries
/// that do not rise.
BatchRamp parse_batch_ramp(std::string_view text);

/// The inverse of parse_batch_ramp().
std::string to_text(const BatchRamp& ramp);

/// Rows of the step that starts after `consumed` rows.
std::int64_t ramp_rows(const BatchRamp& ramp, std::int64_t full, std::int64_t consumed);

/// Throws InputError unless START <= full, INCREMENT divides full - START, and START and INCREMENT (or all rows of a
/// list) are multiples of `ranks`, so that every rank has whole rows in every step; a list must end with the full
/// batch.
void check_batch_ramp(const BatchRamp& ramp, std::int64_t full, std::int64_t ranks);

}  // namespace tessera::layout
