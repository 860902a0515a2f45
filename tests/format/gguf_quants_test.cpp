// Dequantization compared with gguf-py (tests/parity/gguf_fixture.py).

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/format/gguf/gguf.h>
#include <tessera/format/gguf/gguf_quants.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tests/paths.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace tessera::format {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/gguf/");

TEST(GgufQuants, EveryTypeEqualsTheReferenceToTheLastBit) {
  const GgufFile file(fixtures + "quants.gguf");
  const SafetensorsFile expected(fixtures + "quants.safetensors");
  ASSERT_EQ(file.tensors().size(), dequantisable_types().size());
  for (const GgufTensor& tensor : file.tensors()) {
    EXPECT_EQ(tensor.name, ggml_type_info(tensor.type).name);
    const TensorInfo* info = expected.find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->shape, tensor.shape);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    dequantise(tensor.type, file.bytes(tensor), values);
    const auto reference = expected.bytes(*info);
    ASSERT_EQ(reference.size(), values.size() * 4);
    EXPECT_EQ(std::memcmp(reference.data(), values.data(), reference.size()), 0) << tensor.name;
  }
}

TEST(GgufQuants, WrongSizesAndTypesAreErrors) {
  std::vector<std::byte> bytes(36);
  std::vector<float> values(64);
  dequantise(GgmlType::q4_0, bytes, values);
  EXPECT_THROW(dequantise(GgmlType::q4_0, std::span(bytes).first(35), values), Error);
  EXPECT_THROW(dequantise(GgmlType::q4_0, bytes, std::span(values).first(63)), Error);
  EXPECT_THROW(dequantise(GgmlType::iq4_nl, bytes, values), Error);
  EXPECT_FALSE(can_dequantise(GgmlType::iq4_nl));
  EXPECT_TRUE(can_dequantise(GgmlType::q6_k));
}

}  // namespace
}  // namespace tessera::format
