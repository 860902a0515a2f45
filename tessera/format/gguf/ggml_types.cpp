#include <tessera/format/gguf/ggml_types.h>

#include <array>

#include <tessera/base/error.h>

namespace tessera::format {
namespace {

constexpr std::array<GgmlTypeInfo, 30> kTypes{{
    {GgmlType::f32, "F32", 1, 4},
    {GgmlType::f16, "F16", 1, 2},
    {GgmlType::q4_0, "Q4_0", 32, 18},
    {GgmlType::q4_1, "Q4_1", 32, 20},
    {GgmlType::q5_0, "Q5_0", 32, 22},
    {GgmlType::q5_1, "Q5_1", 32, 24},
    {GgmlType::q8_0, "Q8_0", 32, 34},
    {GgmlType::q2_k, "Q2_K", 256, 84},
    {GgmlType::q3_k, "Q3_K", 256, 110},
    {GgmlType::q4_k, "Q4_K", 256, 144},
    {GgmlType::q5_k, "Q5_K", 256, 176},
    {GgmlType::q6_k, "Q6_K", 256, 210},
    {GgmlType::iq2_xxs, "IQ2_XXS", 256, 66},
    {GgmlType::iq2_xs, "IQ2_XS", 256, 74},
    {GgmlType::iq3_xxs, "IQ3_XXS", 256, 98},
    {GgmlType::iq1_s, "IQ1_S", 256, 50},
    {GgmlType::iq4_nl, "IQ4_NL", 32, 18},
    {GgmlType::iq3_s, "IQ3_S", 256, 110},
    {GgmlType::iq2_s, "IQ2_S", 256, 82},
    {GgmlType::iq4_xs, "IQ4_XS", 256, 136},
    {GgmlType::i8, "I8", 1, 1},
    {GgmlType::i16, "I16", 1, 2},
    {GgmlType::i32, "I32", 1, 4},
    {GgmlType::i64, "I64", 1, 8},
    {GgmlType::f64, "F64", 1, 8},
    {GgmlType::iq1_m, "IQ1_M", 256, 56},
    {GgmlType::bf16, "BF16", 1, 2},
    {GgmlType::tq1_0, "TQ1_0", 256, 54},
    {GgmlType::tq2_0, "TQ2_0", 256, 66},
    {GgmlType::mxfp4, "MXFP4", 32, 17},
}};

}  // namespace

const GgmlTypeInfo* find_ggml_type(std::uint32_t number) {
  for (const GgmlTypeInfo& info : kTypes)
    if (static_cast<std::uint32_t>(info.type) == number) return &info;
  return nullptr;
}

const GgmlTypeInfo& ggml_type_info(GgmlType type) {
  const GgmlTypeInfo* info = find_ggml_type(static_cast<std::uint32_t>(type));
  TESSERA_CHECK(info != nullptr, "ggml type ", static_cast<std::uint32_t>(type));
  return *info;
}

std::vector<std::string> ggml_type_names() {
  std::vector<std::string> names;
  for (const GgmlTypeInfo& info : kTypes) names.emplace_back(info.name);
  return names;
}

}  // namespace tessera::format
