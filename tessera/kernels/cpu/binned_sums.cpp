#include <tessera/kernels/cpu/binned_sums.h>

namespace tessera::kernels {

namespace {

void carry(double* bins, std::int64_t stride, std::int64_t count) {
  for (int j = bin_count - 1; j > 0; --j) {
    double *low = bins + j * stride, *high = low - stride;
    const double rounder = bin_rounder(j - 1);
    for (std::int64_t i = 0; i < count; ++i) {
      const double carried = (low[i] + rounder) - rounder;
      low[i] -= carried;
      high[i] += carried;
    }
  }
}

}  // namespace

void carry_bins(double* bins, std::int64_t count) { carry(bins, count, count); }

void merge_bins(double* into, std::int64_t into_stride, const double* from, std::int64_t from_stride,
                std::int64_t count) {
  for (int j = 0; j < bin_count; ++j)
    for (std::int64_t i = 0; i < count; ++i) into[j * into_stride + i] += from[j * from_stride + i];
  carry(into, into_stride, count);
}

void bin_values(double* bins, std::int64_t count, double* values) {
  carry_bins(bins, count);
  for (std::int64_t i = 0; i < count; ++i) {
    // Rounding to nearest leaves ties and signs ambiguous; remainders in [0, grid of the next bin) are unique.
    double sum = 0, borrowed = 0;
    for (int j = bin_count - 1; j >= 0; --j) {
      double digit = bins[j * count + i] - borrowed;
      borrowed = 0;
      if (j > 0 && digit < 0) {
        borrowed = bin_grid(j - 1);
        digit += borrowed;
      }
      sum += digit;
    }
    values[i] = sum;
  }
}

}  // namespace tessera::kernels
