#pragma once
/// \file
/// Arithmetic of collectives: reduces R arrays to one, element by element, in a fixed order.

#include <cstdint>

namespace tessera::kernels {

enum class Number : std::uint8_t { fp32, fp64, bf16, fp16, int8, uint8, int32, int64 };
enum class Fold : std::uint8_t { sum, mean, min, max, product };

constexpr int max_reduce_inputs = 64;
constexpr std::int64_t size_of(Number number) {
  constexpr std::int64_t sizes[] = {4, 8, 2, 2, 1, 1, 4, 8};
  return sizes[static_cast<int>(number)];
}

/// out[i] = op(...op(op(start[i], x_0[i]), x_1[i])..., x_{R-1}[i]) for n elements, strictly from the left; without
/// `start`, the fold begins with x_0. bf16 and fp16 are folded in fp32 and rounded once (to nearest even; a NaN stays
/// NaN); integers wrap around. A mean divides the sum once, before that rounding; it is not supported for integers. min
/// and max return NaN if any input is NaN. Every element undergoes the same operations in the same order, so the bits
/// (except for a NaN's payload) depend neither on where a range is cut nor on the instruction set.
struct Reduce {
  Number number = Number::fp32;  ///< type of the inputs
  Fold fold = Fold::sum;
  const void* const* inputs = nullptr;  ///< [input_count] arrays of n elements, with any alignment
  int input_count = 0;                  ///< 1..64; R
  void* const* outputs = nullptr;       ///< [output_count] arrays, each of which receives the whole result; one may be
                                        ///< an input or `start`
  int output_count = 1;                 ///< >= 1
  const void* start = nullptr;          ///< n elements of the output's type, or null
  bool fp32_output = false;             ///< with bf16 or fp16 inputs: `start` and the outputs are fp32, and nothing is
                                        ///< rounded
  std::int64_t divisor = 0;             ///< divisor of a mean; 0: R
  bool stream = false;                  ///< non-temporal stores, for outputs that leave the cache before they are read
};
/// Throws Error for counts out of range, a mean of integers, and fp32_output with other input types.
void reduce(const Reduce& what, std::int64_t n);

/// Size in bytes from which non-temporal stores pay off (no line is read before it is overwritten, but the result is
/// not in the cache either). A caller that cuts a range must pass the size of the whole range.
constexpr std::int64_t stream_bytes = std::int64_t{1} << 20;

/// memcpy with non-temporal stores; ranges do not overlap.
void stream_copy(void* to, const void* from, std::int64_t bytes);

}  // namespace tessera::kernels
