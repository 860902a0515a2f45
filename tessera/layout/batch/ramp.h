#pragma once
/// \file
/// A global batch that grows while the run goes on (Megatron-LM's --rampup-batch-size START INCREMENT SAMPLES).
///
/// The way from START to the full batch is cut into (full - START) / INCREMENT equal parts of SAMPLES rows altogether:
/// after c rows a step takes START + INCREMENT floor(c / (SAMPLES / parts)) rows, and from SAMPLES on the full batch.

#include <cstdint>
#include <string_view>

namespace tessera::layout {

struct BatchRamp {
  std::int64_t start = 0, increment = 0, samples = 0;
  bool operator==(const BatchRamp&) const = default;
};

/// "32,32,1000000", spaces for commas allowed. Throws InputError naming what is wrong.
BatchRamp parse_batch_ramp(std::string_view text);

/// Rows of the step that begins when `consumed` rows are done.
std::int64_t ramp_rows(const BatchRamp& ramp, std::int64_t full, std::int64_t consumed);

/// Throws InputError unless START <= full, INCREMENT divides full - START, and START and INCREMENT are multiples of
/// `ranks`, so that every step has whole rows for every rank.
void check_batch_ramp(const BatchRamp& ramp, std::int64_t full, std::int64_t ranks);

}  // namespace tessera::layout
