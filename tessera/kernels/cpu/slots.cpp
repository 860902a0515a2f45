#include <tessera/kernels/cpu/slots.h>

#include <cstring>

namespace tessera::kernels {
namespace {

/// Uses several partial sums because the compiler may not reorder, and thus not vectorize, a single one.
float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t lanes = 16;
  float parts[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) parts[l] += a[i + l] * b[i + l];
  float sum = 0;
  for (const float part : parts) sum += part;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void gather_slots(const float* x, const std::int64_t* slots, const float* weights, float* y, std::int64_t rows,
                  std::int64_t k, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r, y += columns) {
    if (slots[r] < 0) {
      std::memset(y, 0, static_cast<std::size_t>(columns) * sizeof(float));
      continue;
    }
    const float* const token = x + slots[r] / k * columns;
    if (weights == nullptr) {
      std::memcpy(y, token, static_cast<std::size_t>(columns) * sizeof(float));
      continue;
    }
    const float w = weights[slots[r]];
    for (std::int64_t c = 0; c < columns; ++c) y[c] = w * token[c];
  }
}

void sum_slots(const float* x, const std::int64_t* row_of, const float* weights, float* y, std::int64_t tokens,
               std::int64_t k, std::int64_t columns) {
  for (std::int64_t n = 0; n < tokens; ++n, y += columns) {
    std::memset(y, 0, static_cast<std::size_t>(columns) * sizeof(float));
    for (std::int64_t slot = n * k; slot < (n + 1) * k; ++slot) {
      if (row_of[slot] < 0) continue;
      const float* const row = x + row_of[slot] * columns;
      const float w = weights != nullptr ? weights[slot] : 1;
      for (std::int64_t c = 0; c < columns; ++c) y[c] += w * row[c];
    }
  }
}

void dot_slots(const float* x, const std::int64_t* row_of, const float* y, float* out, std::int64_t tokens,
               std::int64_t k, std::int64_t columns) {
  for (std::int64_t slot = 0; slot < tokens * k; ++slot)
    out[slot] = row_of[slot] < 0 ? 0 : dot(x + row_of[slot] * columns, y + slot / k * columns, columns);
}

}  // namespace tessera::kernels
