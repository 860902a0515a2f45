#pragma once
/// \file
/// Processes a row as vectors. Included by the *_loops.h inside the anonymous namespace of a table.

/// Calls f(vector index, lanes) for each vector of a row: `lanes` is F32::width except for the last one.
template <class F>
inline __attribute__((always_inline)) void for_vectors(std::int64_t n, const F& f) {
  std::int64_t i = 0;
  for (; i + F32::width <= n; i += F32::width) f(i, F32::width);  // `lanes` is a constant here, so no masks are needed
  if (i < n) f(i, static_cast<int>(n - i));
}
