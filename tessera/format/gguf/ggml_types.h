#pragma once
/// \file
/// The element types of GGUF tensors (ggml/include/ggml.h `ggml_type`, ggml/src/ggml-common.h `block_*`): their
/// numbers, names, and block sizes in elements and bytes.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::format {

enum class GgmlType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
};

struct GgmlTypeInfo {
  GgmlType type;
  const char* name;              ///< "Q4_K"
  std::uint32_t block_elements;  ///< elements per block; the innermost dimension is a multiple of it
  std::uint32_t block_bytes;
};

/// nullptr: not a type of tensors in files (or a type newer than this table).
const GgmlTypeInfo* find_ggml_type(std::uint32_t number);
const GgmlTypeInfo& ggml_type_info(GgmlType type);
/// All names in the table, ordered by number.
std::vector<std::string> ggml_type_names();

}  // namespace tessera::format
