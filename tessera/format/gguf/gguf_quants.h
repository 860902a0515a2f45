#pragma once
/// \file
/// Conversion of GGUF element types to float. Formulas and bit layouts: ggml/src/ggml-common.h (block_*) and
/// ggml/src/ggml-quants.c (dequantize_row_*) of llama.cpp. q are the stored integers, d and m the block's f16 scale and
/// minimum:
///   F32 F16 BF16  the value
///   Q8_0          d q                q: 32 int8
///   Q4_0 Q5_0     d (q - 8), d (q - 16)
///   Q4_1 Q5_1     d q + m
///   Q4_K Q5_K     (d s_i) q - (m t_i)   256 elements, 8 sub-blocks i with 6-bit scales s and minima t
///   Q6_K          (d s_i)(q - 32)       256 elements, 16 sub-blocks with int8 scales s

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tessera/format/gguf/ggml_types.h>

namespace tessera::format {

bool can_dequantise(GgmlType type);
std::vector<std::string> dequantisable_types();  ///< their names

/// Converts whole blocks to floats, with the same rounding as ggml. Throws Error unless `values` has block_elements
/// floats for every block_bytes of `blocks` and can_dequantise accepts the type. `blocks` may have any alignment.
/// Thread-safe.
void dequantise(GgmlType type, std::span<const std::byte> blocks, std::span<float> values);

}  // namespace tessera::format
