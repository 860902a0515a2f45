#include <tessera/format/gguf/gguf_quants.h>

#include <array>
#include <cstdint>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/base/half.h>

namespace tessera::format {
namespace {

// Each function decodes the block at p and writes its elements to y.
using Byte = unsigned char;

std::uint16_t u16_at(const Byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return bits;
}
float f16_at(const Byte* p) { return from_f16(u16_at(p)); }

void f32(const Byte* p, float* y) { std::memcpy(y, p, 4); }
void f16(const Byte* p, float* y) { *y = f16_at(p); }
void bf16(const Byte* p, float* y) { *y = from_bf16(u16_at(p)); }

void q8_0(const Byte* p, float* y) {
  const float d = f16_at(p);
  for (int j = 0; j < 32; ++j) y[j] = d * static_cast<float>(static_cast<signed char>(p[2 + j]));
}

// Element j < 16 is the low half of byte j, element 16 + j the high half.
void q4_0(const Byte* p, float* y) {
  const float d = f16_at(p);
  const Byte* q = p + 2;
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((q[j] & 15) - 8);
    y[j + 16] = d * static_cast<float>((q[j] >> 4) - 8);
  }
}

void q4_1(const Byte* p, float* y) {
  const float d = f16_at(p), m = f16_at(p + 2);
  const Byte* q = p + 4;
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(q[j] & 15) + m;
    y[j + 16] = d * static_cast<float>(q[j] >> 4) + m;
  }
}

// Bit j of the 32 high bits belongs to element j.
std::array<int, 32> five_bits(const Byte* high, const Byte* q) {
  std::uint32_t h;
  std::memcpy(&h, high, 4);
  std::array<int, 32> out;
  for (int j = 0; j < 16; ++j) {
    out[static_cast<std::size_t>(j)] = (q[j] & 15) | static_cast<int>((h >> j & 1) << 4);
    out[static_cast<std::size_t>(j + 16)] = (q[j] >> 4) | static_cast<int>((h >> (j + 16) & 1) << 4);
  }
  return out;
}

void q5_0(const Byte* p, float* y) {
  const float d = f16_at(p);
  for (int q : five_bits(p + 2, p + 6)) *y++ = d * static_cast<float>(q - 16);
}

void q5_1(const Byte* p, float* y) {
  const float d = f16_at(p), m = f16_at(p + 2);
  for (int q : five_bits(p + 4, p + 8)) *y++ = d * static_cast<float>(q) + m;
}

struct ScaleAndMinimum {
  float scale, minimum;
};

// Decodes the 8 pairs of 6-bit numbers that Q4_K and Q5_K pack into 12 bytes s: those of sub-blocks 0-3 are in the low
// 6 bits of s[0..3] and s[4..7]; those of sub-blocks 4-7 have their low 4 bits in s[8..11] and their high 2 bits in the
// top bits of s[0..3] and s[4..7].
std::array<ScaleAndMinimum, 8> sub_scales(const Byte* s, float d, float m) {
  std::array<ScaleAndMinimum, 8> out;
  for (std::size_t j = 0; j < 4; ++j) {
    const int high_scale = (s[j + 8] & 15) | (s[j] >> 6 << 4), high_minimum = (s[j + 8] >> 4) | (s[j + 4] >> 6 << 4);
    out[j] = {d * static_cast<float>(s[j] & 63), m * static_cast<float>(s[j + 4] & 63)};
    out[j + 4] = {d * static_cast<float>(high_scale), m * static_cast<float>(high_minimum)};
  }
  return out;
}

// 64 elements share 32 bytes: the low halves are the first 32.
void q4_k(const Byte* p, float* y) {
  const auto scales = sub_scales(p + 4, f16_at(p), f16_at(p + 2));
  const Byte* q = p + 16;
  for (std::size_t i = 0; i < 8; i += 2, q += 32, y += 64) {
    for (int l = 0; l < 32; ++l) y[l] = scales[i].scale * static_cast<float>(q[l] & 15) - scales[i].minimum;
    for (int l = 0; l < 32; ++l)
      y[l + 32] = scales[i + 1].scale * static_cast<float>(q[l] >> 4) - scales[i + 1].minimum;
  }
}

// Like Q4_K, with the fifth bit of sub-block i in bit i of 32 additional bytes.
void q5_k(const Byte* p, float* y) {
  const auto scales = sub_scales(p + 4, f16_at(p), f16_at(p + 2));
  const Byte *high = p + 16, *q = p + 48;
  for (std::size_t i = 0; i < 8; i += 2, q += 32, y += 64) {
    for (int l = 0; l < 32; ++l)
      y[l] = scales[i].scale * static_cast<float>((q[l] & 15) | (high[l] >> i & 1) << 4) - scales[i].minimum;
    for (int l = 0; l < 32; ++l)
      y[l + 32] =
          scales[i + 1].scale * static_cast<float>((q[l] >> 4) | (high[l] >> (i + 1) & 1) << 4) - scales[i + 1].minimum;
  }
}

// 128 elements use 64 bytes for the low 4 bits and 32 bytes for the high 2 bits.
void q6_k(const Byte* p, float* y) {
  const Byte *low = p, *high = p + 128, *s = p + 192;
  const float d = f16_at(p + 208);
  const auto scale = [&](int i) { return d * static_cast<float>(static_cast<signed char>(s[i])); };
  for (int half = 0; half < 2; ++half, low += 64, high += 32, s += 8, y += 128) {
    for (int l = 0; l < 32; ++l) {
      const int i = l / 16;
      y[l] = scale(i) * static_cast<float>(((low[l] & 15) | (high[l] & 3) << 4) - 32);
      y[l + 32] = scale(i + 2) * static_cast<float>(((low[l + 32] & 15) | (high[l] >> 2 & 3) << 4) - 32);
      y[l + 64] = scale(i + 4) * static_cast<float>(((low[l] >> 4) | (high[l] >> 4 & 3) << 4) - 32);
      y[l + 96] = scale(i + 6) * static_cast<float>(((low[l + 32] >> 4) | (high[l] >> 6) << 4) - 32);
    }
  }
}

template <auto block_function>
void each_block(const Byte* p, std::size_t blocks, const GgmlTypeInfo& info, float* y) {
  for (std::size_t b = 0; b < blocks; ++b) block_function(p + b * info.block_bytes, y + b * info.block_elements);
}

struct Row {
  GgmlType type;
  void (*run)(const Byte*, std::size_t, const GgmlTypeInfo&, float*);
};
constexpr std::array<Row, 11> kRows{{
    {GgmlType::f32, each_block<f32>},
    {GgmlType::f16, each_block<f16>},
    {GgmlType::bf16, each_block<bf16>},
    {GgmlType::q8_0, each_block<q8_0>},
    {GgmlType::q4_0, each_block<q4_0>},
    {GgmlType::q4_1, each_block<q4_1>},
    {GgmlType::q5_0, each_block<q5_0>},
    {GgmlType::q5_1, each_block<q5_1>},
    {GgmlType::q4_k, each_block<q4_k>},
    {GgmlType::q5_k, each_block<q5_k>},
    {GgmlType::q6_k, each_block<q6_k>},
}};

const Row* find_row(GgmlType type) {
  for (const Row& row : kRows)
    if (row.type == type) return &row;
  return nullptr;
}

}  // namespace

bool can_dequantise(GgmlType type) { return find_row(type) != nullptr; }

std::vector<std::string> dequantisable_types() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(ggml_type_info(row.type).name);
  return names;
}

void dequantise(GgmlType type, std::span<const std::byte> blocks, std::span<float> values) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  const Row* row = find_row(type);
  TESSERA_CHECK(row != nullptr, "no conversion of ", info.name, " to float");
  const std::size_t count = blocks.size() / info.block_bytes;
  TESSERA_CHECK(count * info.block_bytes == blocks.size() && count * info.block_elements == values.size(),
                blocks.size(), " bytes of ", info.name, " are not ", values.size(), " elements");
  row->run(reinterpret_cast<const Byte*>(blocks.data()), count, info, values.data());
}

}  // namespace tessera::format
