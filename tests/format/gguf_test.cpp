// The GGUF reader: metadata of every type, both versions, and every kind of damage.

#include "gguf_builder.h"

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::format {
namespace {

using testing::gguf_string;
using testing::GgufBuilder;
using testing::little_endian;

GgufHeader parse(const std::string& bytes) { return parse_gguf_header(std::as_bytes(std::span(bytes)), "m.gguf"); }

void expect_refused(const std::string& bytes, const std::vector<std::string>& parts) {
  try {
    parse(bytes);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("m.gguf: ")) << text;
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
  }
}

GgufBuilder small() {
  GgufBuilder b;
  b.add("general.architecture", "none").add("n", 7u);
  b.tensor("a", {2, 3}).tensor("b", {5}, 100);
  return b;
}

TEST(Gguf, ReadsTensorsOfBothVersions) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBuilder b = small();
    b.version = version;
    const std::string bytes = b.build();
    const GgufFile file(std::as_bytes(std::span(bytes)), "m.gguf");
    EXPECT_EQ(file.header().version, version);
    ASSERT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.tensors()[0].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(file.tensors()[1].begin, 32u);
    const GgufTensor* b_tensor = file.find("b");
    ASSERT_NE(b_tensor, nullptr);
    EXPECT_EQ(b_tensor->elements(), 5);
    float first = 0;
    std::memcpy(&first, file.bytes(*b_tensor).data(), 4);
    EXPECT_EQ(first, 100.0f);
    EXPECT_EQ(file.find("c"), nullptr);
  }
}

TEST(Gguf, ReadsMetadataOfEveryType) {
  GgufBuilder b;
  b.raw("u8", GgufType::u8, little_endian(std::uint8_t{200})).raw("i8", GgufType::i8, little_endian(std::int8_t{-2}));
  b.raw("u16", GgufType::u16, little_endian(std::uint16_t{60000}))
      .raw("i16", GgufType::i16, little_endian(std::int16_t{-3}));
  b.raw("i32", GgufType::i32, little_endian(-4)).raw("u64", GgufType::u64, little_endian(std::uint64_t{1} << 40));
  b.raw("i64", GgufType::i64, little_endian(std::int64_t{-5})).raw("f64", GgufType::f64, little_endian(0.1));
  b.raw("big", GgufType::u64, little_endian(~std::uint64_t{0}));
  b.add("u32", 6u).add("f32", 1e-5f).add("yes", true).add("text", "h\xC3\xA9llo");
  b.add("texts", std::vector<std::string>{"a", "", "bc"}).add("numbers", std::vector<std::int32_t>{1, -1});
  const std::string inner = little_endian(std::uint32_t{5}) + little_endian(std::uint64_t{1}) + little_endian(9);
  b.raw("nested", GgufType::array, little_endian(std::uint32_t{9}) + little_endian(std::uint64_t{2}) + inner + inner);
  b.tensor("t", {1});
  const std::string bytes = b.build();
  const GgufFile file(std::as_bytes(std::span(bytes)), "m.gguf");
  EXPECT_EQ(file.integer("u8"), 200);
  EXPECT_EQ(file.integer("i8"), -2);
  EXPECT_EQ(file.integer("u16"), 60000);
  EXPECT_EQ(file.integer("i16"), -3);
  EXPECT_EQ(file.integer("u32"), 6);
  EXPECT_EQ(file.integer("i32"), -4);
  EXPECT_EQ(file.integer("u64"), std::int64_t{1} << 40);
  EXPECT_EQ(file.integer("i64"), -5);
  EXPECT_EQ(file.real("f64"), 0.1);
  EXPECT_EQ(file.real("f32"), 1e-5);  // not 9.9999997e-06
  EXPECT_EQ(file.real("u32"), 6.0);
  EXPECT_EQ(file.boolean("yes"), true);
  EXPECT_EQ(file.text("text"), "h\xC3\xA9llo");
  EXPECT_EQ(file.strings("texts"), (std::vector<std::string_view>{"a", "", "bc"}));
  EXPECT_EQ(file.integers("numbers"), (std::vector<std::int64_t>{1, -1}));
  EXPECT_EQ(file.value("nested")->count, 2u);
  EXPECT_EQ(file.integer("absent"), std::nullopt);
  EXPECT_THROW(file.integer("big"), InputError);  // above 2^63 - 1
  EXPECT_THROW(file.integer("text"), InputError);
  EXPECT_THROW(file.text("u32"), InputError);
  EXPECT_THROW(file.boolean("u8"), InputError);
  EXPECT_THROW(file.strings("numbers"), InputError);
  EXPECT_THROW(file.integers("nested"), InputError);
  EXPECT_THROW(file.integers("texts"), InputError);
}

TEST(Gguf, AlignmentIsTheFilesOwn) {
  GgufBuilder b = small();
  b.alignment = 64;
  b.add("general.alignment", 64u);
  const GgufHeader header = parse(b.build());
  EXPECT_EQ(header.alignment, 64u);
  EXPECT_EQ(header.data_begin % 64, 0u);
  EXPECT_EQ(header.tensors[1].begin, 64u);
  for (const std::uint32_t wrong : {0u, 48u, 1u << 31}) {
    b.add("general.alignment", wrong);
    expect_refused(b.build(), {"general.alignment", std::to_string(wrong), "power of two"});
  }
  b.add("general.alignment", "32");
  expect_refused(b.build(), {"general.alignment", "string", "uint32"});
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string bytes = small().build();
  parse(bytes);
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(parse(bytes.substr(0, n)), InputError) << n;
}

TEST(Gguf, OtherFiles) {
  expect_refused("", {"not a GGUF file"});
  expect_refused("PK\3\4 something else entirely", {"not a GGUF file"});
  GgufBuilder b = small();
  b.version = 1;
  expect_refused(b.build(), {"version 1", "2 and 3"});
  b.version = 0x03000000;
  expect_refused(b.build(), {"big-endian"});
}

TEST(Gguf, AbsurdCounts) {
  GgufBuilder b = small();
  b.extra_tensors = std::int64_t{1} << 60;
  expect_refused(b.build(), {"claims", "tensors", "truncated or damaged"});
  b.extra_tensors = -3;  // reads as 2^64 - 1
  expect_refused(b.build(), {"claims 18446744073709551615 tensors"});
  b.extra_tensors = 0;
  b.extra_entries = std::int64_t{1} << 40;
  expect_refused(b.build(), {"claims", "metadata entries"});

  GgufBuilder array = small();
  array.raw("list", GgufType::array, little_endian(std::uint32_t{4}) + little_endian(std::uint64_t{1} << 62));
  expect_refused(array.build(), {"'list'", "claims 4611686018427387904 elements of uint32"});
  GgufBuilder text = small();
  text.raw("text", GgufType::string, little_endian(~std::uint64_t{0}));
  expect_refused(text.build(), {"'text'", "18446744073709551615 bytes"});
}

TEST(Gguf, BadMetadata) {
  GgufBuilder b = small();
  b.raw("kind", static_cast<GgufType>(13), "");
  expect_refused(b.build(), {"'kind'", "type 13"});
  expect_refused(small().repeat(1).build(), {"'n'", "twice"});
  expect_refused(small().raw("", GgufType::u8, "x").build(), {"no key"});
  expect_refused(small().raw("flag", GgufType::boolean, "\2").build(), {"'flag'", "bool of value 2"});
  expect_refused(small().raw("s", GgufType::string, gguf_string("\xFF\xFE")).build(), {"'s'", "UTF-8"});
  expect_refused(small().add("l", std::vector<std::string>{"fine", "\xC0\x80"}).build(), {"'l'", "UTF-8"});
  expect_refused(small().raw("\xED\xA0\x80", GgufType::u8, "x").build(), {"key", "UTF-8"});
  std::string deep;
  for (int i = 0; i < 20; ++i) deep += little_endian(std::uint32_t{9}) + little_endian(std::uint64_t{1});
  expect_refused(small().raw("deep", GgufType::array, deep + std::string(64, '\0')).build(),
                 {"'deep'", "deeper than 8"});
}

TEST(Gguf, BadTensors) {
  const auto with = [](auto change) {
    GgufBuilder b = small();
    change(b.at("b"));
    return b.build();
  };
  using Tensor = GgufBuilder::Tensor;
  expect_refused(with([](Tensor& t) { t.name = "a"; }), {"two tensors are named 'a'"});
  expect_refused(with([](Tensor& t) { t.name = ""; }), {"no name"});
  expect_refused(with([](Tensor& t) { t.name = "\xFF"; }), {"UTF-8"});
  expect_refused(with([](Tensor& t) { t.name = "b\x1B[2J"; }), {"name of tensor 1", "control character 27"});
  expect_refused(with([](Tensor& t) { t.type = 77; }), {"'b'", "type 77", "Q4_K"});
  expect_refused(with([](Tensor& t) { t.type = 4; }), {"'b'", "type 4"});  // removed from the format
  expect_refused(with([](Tensor& t) { t.sizes = {1, 1, 1, 1, 5}; }), {"'b'", "5 dimensions", "4"});
  expect_refused(with([](Tensor& t) { t.sizes = {0}; }), {"'b'", "dimension 0 is 0"});
  expect_refused(with([](Tensor& t) { t.sizes = {~std::uint64_t{0}}; }), {"'b'", "18446744073709551615"});
  expect_refused(with([](Tensor& t) { t.sizes = {1ull << 40, 1ull << 40}; }), {"'b'", "below 2^63"});
  expect_refused(with([](Tensor& t) { t.sizes = {1ull << 62}; }), {"'b'", "2^63 bytes"});
  expect_refused(with([](Tensor& t) { t.sizes = {6}; }), {"'b'", "32 to 56", "truncated"});
  expect_refused(with([](Tensor& t) { t.type = 2; }), {"'b'", "Q4_0", "whole blocks of 32"});
  expect_refused(with([](Tensor& t) { t.shift = 4; }), {"'b'", "offset 36", "alignment 32"});
  expect_refused(with([](Tensor& t) { t.shift = -32; }), {"begins at byte 0", "must not overlap"});
  expect_refused(with([](Tensor& t) { t.shift = 1 << 20; }), {"'b'", "truncated"});
  expect_refused(with([](Tensor& t) { t.shift = -64; }), {"'b'"});  // an offset of 2^64 - 32
}

}  // namespace
}  // namespace tessera::format
