#pragma once
/// \file
/// Small matrix products with operands in the nearest caches. Included by loops.h inside the anonymous namespace of a
/// table.

/// Rows and vectors of a tile of sums that stays in registers. A row of B and an element of A need the rest of the 32
/// (AVX-512, NEON) or 16 (AVX2) vector registers.
constexpr int product_rows = 6, product_vectors = F32::width == 8 ? 2 : 4;

/// C [Rows, Vectors * width] = or += A B: A's element (i, l) is at a + i * a_row + l * a_column, B's row l at b + l *
/// b_row, C's row i at c + i * c_row.
template <int Rows, int Vectors>
inline __attribute__((always_inline)) void product_tile(std::int64_t depth, const float* a, std::int64_t a_row,
                                                        std::int64_t a_column, const float* b, std::int64_t b_row,
                                                        float* c, std::int64_t c_row, bool add) {
  F32 sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) sums[i][j] = add ? F32::load(c + i * c_row + j * F32::width) : F32::of(0);
  for (std::int64_t l = 0; l < depth; ++l) {
    F32 row[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) row[j] = F32::load(b + l * b_row + j * F32::width);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const F32 x = F32::of(a[i * a_row + l * a_column]);
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) sums[i][j] = fma(x, row[j], sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) sums[i][j].store(c + i * c_row + j * F32::width);
}

template <int Vectors>
inline void product_columns(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_row,
                            std::int64_t a_column, const float* b, std::int64_t b_row, float* c, std::int64_t c_row,
                            bool add) {
  std::int64_t i = 0;
  for (; i + product_rows <= rows; i += product_rows)
    product_tile<product_rows, Vectors>(depth, a + i * a_row, a_row, a_column, b, b_row, c + i * c_row, c_row, add);
  a += i * a_row, c += i * c_row;
  switch (rows - i) {
    case 5:
      return product_tile<5, Vectors>(depth, a, a_row, a_column, b, b_row, c, c_row, add);
    case 4:
      return product_tile<4, Vectors>(depth, a, a_row, a_column, b, b_row, c, c_row, add);
    case 3:
      return product_tile<3, Vectors>(depth, a, a_row, a_column, b, b_row, c, c_row, add);
    case 2:
      return product_tile<2, Vectors>(depth, a, a_row, a_column, b, b_row, c, c_row, add);
    case 1:
      return product_tile<1, Vectors>(depth, a, a_row, a_column, b, b_row, c, c_row, add);
    default:
      return;
  }
}

/// C [rows, columns] = or += A B of `depth`; columns is a multiple of 16.
inline void product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a, std::int64_t a_row,
                    std::int64_t a_column, const float* b, std::int64_t b_row, float* c, std::int64_t c_row, bool add) {
  constexpr std::int64_t wide = product_vectors * F32::width;
  std::int64_t j = 0;
  for (; j + wide <= columns; j += wide)
    product_columns<product_vectors>(rows, depth, a, a_row, a_column, b + j, b_row, c + j, c_row, add);
  if constexpr (wide > 16)
    for (; j < columns; j += F32::width)
      product_columns<1>(rows, depth, a, a_row, a_column, b + j, b_row, c + j, c_row, add);
}
