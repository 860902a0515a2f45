#include <tessera/format/safetensors/safetensors.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tests/paths.h>

namespace tessera::format {
namespace {

std::string file_bytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  return bytes + header + data;
}

SafetensorsHeader parse(const std::string& bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes)), "m.safetensors");
}

// The message of the InputError for these bytes; "" if they are accepted.
std::string complaint(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string complaint(const std::string& header, std::size_t data_bytes) {
  return complaint(file_bytes(header, std::string(data_bytes, 'd')));
}

// Expects that the file with these bytes or this header is refused with a message that contains its name and `part`.
template <class... Arguments>
void expect_complaint(const std::string& part, const Arguments&... arguments) {
  const std::string text = complaint(arguments...);
  EXPECT_EQ(text.find("m.safetensors"), 0u) << text;
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
}

const std::string kGood =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";

TEST(Safetensors, AcceptsAWholeFile) {
  const SafetensorsHeader header = parse(file_bytes(kGood, std::string(11, 'd')));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].dtype, DType::u8);
  EXPECT_EQ(header.tensors[1].shape, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(header.data_begin, 8 + kGood.size());
  EXPECT_EQ(complaint("{}", 0), "");
  EXPECT_EQ(complaint(R"({"__metadata__":{"k":"v"},"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}   )", 8), "");
  // Empty tensors take no space, wherever they are listed; file order is the order of the data, not of the header.
  const std::string empties =
      R"({"b":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0,5],"data_offsets":[8,)"
      R"(8]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  EXPECT_EQ(parse(file_bytes(empties, std::string(8, 'd'))).tensors[0].name, "a");
}

TEST(Safetensors, TruncatedHeader) {
  expect_complaint("it has 0 bytes", std::string());
  expect_complaint("it has 7 bytes", std::string(7, '\1'));
  expect_complaint("the file is truncated", file_bytes(kGood, "").substr(0, 40));
  expect_complaint("the file is truncated", file_bytes(kGood, "").substr(0, 8));
}

TEST(Safetensors, EveryTruncationIsFound) {
  const std::string whole = file_bytes(kGood, std::string(11, 'd'));
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(complaint(whole.substr(0, size)), "") << size;
}

TEST(Safetensors, HugeLength) {
  expect_complaint("exceeds the format's limit of 100000000", std::string(8, '\xFF') + kGood);
  expect_complaint("header length 100000001 exceeds", std::string("\x01\xE1\xF5\x05\0\0\0\0", 8) + kGood);
  expect_complaint("header length 100000000 exceeds the", std::string("\x00\xE1\xF5\x05\0\0\0\0", 8) + kGood);
}

TEST(Safetensors, TruncatedDataAndTrailingBytes) {
  expect_complaint("tensor 'b': data_offsets [8, 11] end beyond the 10 bytes of data", kGood, 10);
  expect_complaint("1 trailing bytes belong to no tensor", kGood, 12);
  expect_complaint("5 trailing bytes", "{}", 5);
}

TEST(Safetensors, OverlapAndHole) {
  expect_complaint(
      "tensor 'b': begins at byte 4 of the data, but the tensors before it end at 8: tensors must not overlap",
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
      12);
  expect_complaint(
      "tensors must not leave a gap",
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[2],"data_offsets":[10,12]}})",
      12);
  expect_complaint("tensors must not leave a gap", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3);
  expect_complaint(
      "tensors must not overlap",
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
      2);
}

TEST(Safetensors, SizesAndShapes) {
  expect_complaint("span 7 bytes, but shape [2] of F32 needs 8",
                   R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})", 7);
  expect_complaint("dimensions must be integers >= 0", R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8);
  expect_complaint("dimensions must be integers >= 0", R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
                   8);
  expect_complaint("dimensions must be integers >= 0", R"({"a":{"dtype":"F32","shape":[1e30],"data_offsets":[0,8]}})",
                   8);
  expect_complaint("dimensions must be integers >= 0", R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})",
                   8);
  expect_complaint("overflows", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0);
  expect_complaint("overflows", R"({"a":{"dtype":"F64","shape":[0,2305843009213693952],"data_offsets":[0,0]}})", 0);
  expect_complaint("0 <= begin <= end", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8);
  expect_complaint("0 <= begin <= end", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8);
  expect_complaint("end beyond the 8 bytes",
                   R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})", 8);
}

TEST(Safetensors, EntriesOfTheWrongForm) {
  expect_complaint("tensor 'a': dtype F8_E4M3 is not supported; supported are BOOL, U8",
                   R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1);
  expect_complaint("dtype is missing", R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1);
  expect_complaint("dtype is missing or not a string", R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,1]}})", 1);
  expect_complaint("shape is missing", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1);
  expect_complaint("data_offsets is missing", R"({"a":{"dtype":"U8","shape":[1]}})", 1);
  expect_complaint("an array of two integers", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1);
  expect_complaint("unknown key 'scale'", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"scale":2}})", 1);
  expect_complaint("must be an object", R"({"a":[1]})", 0);
  expect_complaint("__metadata__ must be an object", R"({"__metadata__":[]})", 0);
  expect_complaint("entry 'k' must be a string", R"({"__metadata__":{"k":1}})", 0);
}

TEST(Safetensors, HeadersThatAreNotStrictJson) {
  expect_complaint("must start with '{'", "[]", 0);
  expect_complaint("must start with '{'", " {}", 0);
  expect_complaint("must start with '{'", "", 0);
  expect_complaint("(header)", R"({"a":)", 0);
  expect_complaint("(header)", "{} x", 0);
  expect_complaint("(header)", std::string("{}\0", 3), 0);
  expect_complaint("not valid UTF-8", "{\"\xC3\x28\":{}}", 0);
  expect_complaint(
      "a",
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      2);
  expect_complaint("(header)", std::string(100000, '{'), 0);
}

// The tensors of an accepted file tile it exactly; a refused file gets a message that names it.
void expect_tiling_or_complaint(const std::string& bytes) {
  try {
    const SafetensorsHeader header = parse(bytes);
    std::uint64_t expected = 0;
    for (const TensorInfo& tensor : header.tensors) {
      ASSERT_EQ(tensor.begin, expected);
      ASSERT_GE(tensor.end, tensor.begin);
      expected = tensor.end;
    }
    ASSERT_EQ(header.data_begin + expected, bytes.size());
  } catch (const InputError& error) {
    ASSERT_EQ(std::string(error.what()).find("m.safetensors"), 0u) << error.what();
  }
}

// No damage to a small file makes the reader access memory outside the file.
TEST(Safetensors, DamagedBytesNeverLeadOutsideTheFile) {
  const std::string whole = file_bytes(kGood, std::string(11, 'd'));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(value);
      expect_tiling_or_complaint(bytes);
    }
  }
  EXPECT_TRUE(rc::check([&] {
    std::string bytes = whole;
    const auto changes = *rc::gen::inRange(2, 6);
    for (int i = 0; i < changes; ++i)
      bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
    expect_tiling_or_complaint(bytes);
  }));
}

TensorSource source(const std::string& name, DType dtype, std::vector<std::int64_t> shape, const std::string& bytes) {
  return {name, dtype, std::move(shape),
          [bytes = std::make_shared<std::string>(bytes)] { return std::as_bytes(std::span(*bytes)); }};
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "t.safetensors");
  EXPECT_TRUE(rc::check([&] {
    std::vector<TensorSource> sources;
    std::map<std::string, std::string> expected;
    const auto names = *rc::gen::unique<std::vector<std::string>>(rc::gen::string<std::string>());
    for (const std::string& raw : names) {
      const std::string name = "t" + std::to_string(sources.size()) + ":" + (is_utf8(raw) ? raw : "");
      const auto dtype = static_cast<DType>(*rc::gen::inRange(0, 13));
      const auto shape =
          *rc::gen::container<std::vector<std::int64_t>>(*rc::gen::inRange(0, 4), rc::gen::inRange<std::int64_t>(0, 4));
      std::size_t size = dtype_size(dtype);
      for (auto dim : shape) size *= static_cast<std::size_t>(dim);
      const std::string bytes = *rc::gen::container<std::string>(size, rc::gen::arbitrary<char>());
      sources.push_back(source(name, dtype, shape, bytes));
      expected[name] = bytes;
    }
    const auto given = sources;
    const Digest digest = write_safetensors(path, sources, {{"format", "pt"}, {"q\"\n", "\xC3\xA9"}});
    RC_ASSERT(digest == digest_of_file(path));
    const SafetensorsFile file(path);
    RC_ASSERT(file.metadata().at("q\"\n") == "\xC3\xA9");
    RC_ASSERT(file.tensors().size() == given.size());
    for (const TensorSource& one : given) {
      const TensorInfo* info = file.find(one.name);
      RC_ASSERT(info != nullptr);
      RC_ASSERT(info->dtype == one.dtype);
      RC_ASSERT(info->shape == one.shape);
      const auto bytes = file.bytes(*info);
      RC_ASSERT(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == expected[one.name]);
    }
    RC_ASSERT(file.find("absent") == nullptr);
  }));
}

TEST(Safetensors, TheWriterRefusesBrokenSources) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "t.safetensors");
  EXPECT_THROW(write_safetensors(path, {source("a", DType::u8, {2}, "x")}), Error);
  EXPECT_THROW(write_safetensors(path, {source("a", DType::u8, {1}, "x"), source("a", DType::u8, {1}, "y")}), Error);
  EXPECT_THROW(write_safetensors(path, {source("__metadata__", DType::u8, {1}, "x")}), Error);
  EXPECT_THROW(write_safetensors(path, {source("a", DType::u8, {-1}, "x")}), Error);
  EXPECT_TRUE(list_folder(folder.path()).empty()) << "no file may remain";
}

// Tensors keep the given order, and the data starts at the requested alignment.
TEST(Safetensors, TheFrontOfAFileSaysWhereEveryByteGoes) {
  const std::vector<TensorSpec> specs = {
      {"z", DType::u8, {3}}, {"a\"b", DType::f64, {2, 1}}, {"none", DType::f32, {0, 7}}, {"scalar", DType::bf16, {}}};
  const std::uint64_t sizes[] = {3, 16, 0, 2};
  for (const std::size_t alignment : {8, 64, 4096}) {
    const std::string front = safetensors_front(specs, {{"format", "pt"}}, alignment);
    EXPECT_EQ(front.size() % alignment, 0u);
    const std::string file = front + std::string(21, 'x');
    const auto header = parse_safetensors_header(std::as_bytes(std::span(file)), "t");
    EXPECT_EQ(header.data_begin, front.size());
    EXPECT_EQ(header.metadata.at("format"), "pt");
    ASSERT_EQ(header.tensors.size(), specs.size());
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(byte_size(specs[i]), sizes[i]);
      const auto& info = *std::find_if(header.tensors.begin(), header.tensors.end(),
                                       [&](const TensorInfo& t) { return t.name == specs[i].name; });
      EXPECT_EQ(info.shape, specs[i].shape);
      EXPECT_EQ(info.begin, begin);
      EXPECT_EQ(info.end, begin += sizes[i]);
    }
    // The header alone is enough for a reader that knows the file's size.
    const auto first = std::as_bytes(std::span(front));
    EXPECT_EQ(safetensors_front_bytes(first.first(8), file.size(), "t"), front.size());
    EXPECT_EQ(parse_safetensors_header(first, file.size(), "t").tensors.size(), specs.size());
    EXPECT_THROW(parse_safetensors_header(first, file.size() - 1, "t"), InputError);
    EXPECT_THROW(parse_safetensors_header(first, file.size() + 1, "t"), InputError);
    EXPECT_THROW(parse_safetensors_header(first.first(front.size() - 1), file.size(), "t"), Error);
  }
  EXPECT_EQ(safetensors_front({}, {}, 8), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(Safetensors, FrontsThatCannotBe) {
  const auto front = [](std::vector<TensorSpec> specs, std::size_t alignment = 64) {
    return safetensors_front(specs, {}, alignment);
  };
  EXPECT_THROW(front({{"a", DType::u8, {1}}, {"b", DType::u8, {1}}, {"a", DType::f32, {2}}}), Error);
  EXPECT_THROW(front({{"__metadata__", DType::u8, {1}}}), Error);
  EXPECT_THROW(front({{"a", DType::u8, {-1}}}), Error);
  EXPECT_THROW(front({{"a", DType::f32, {1ll << 61}}}), Error);                // 2^63 bytes
  EXPECT_THROW(front({{"a", DType::f32, {1ll << 40, 0, 1ll << 40}}}), Error);  // strides are products too
  EXPECT_THROW(front({{"a", DType::u8, {1ll << 62}}, {"b", DType::u8, {1ll << 62}}}), Error);
  for (const std::size_t bad : {0, 4, 12, 100}) EXPECT_THROW(front({{"a", DType::u8, {1}}}, bad), Error);
  EXPECT_NO_THROW(front({{"a", DType::u8, {1ll << 62}}}));
}

// Written by the reference writer (tests/parity/safetensors_fixture.py): reading and rewriting gives the same bytes.
TEST(Safetensors, SameBytesAsTheReferenceWriter) {
  for (const char* name : {"mixed.safetensors", "empty.safetensors"}) {
    const std::string path = tessera::testing::source_path("tests/fixtures/safetensors/") + name;
    const SafetensorsFile file(path);
    std::vector<TensorSource> sources;
    for (const TensorInfo& info : file.tensors()) {
      sources.push_back({info.name, info.dtype, info.shape, [&file, &info] { return file.bytes(info); }});
    }
    std::reverse(sources.begin(), sources.end());
    const TemporaryFolder folder;
    const std::string copy = path_join(folder.path(), name);
    write_safetensors(copy, sources, file.metadata());
    EXPECT_EQ(read_file(copy), read_file(path)) << name;
  }
  const SafetensorsFile file(tessera::testing::source_path("tests/fixtures/safetensors/mixed.safetensors"));
  EXPECT_EQ(file.tensors().size(), 17u);
  const TensorInfo* weights = file.find("a.float32");
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->shape, (std::vector<std::int64_t>{2, 3}));
  float values[6];
  std::memcpy(values, file.bytes(*weights).data(), sizeof values);
  EXPECT_EQ(values[0], -2.0f);
  EXPECT_EQ(values[5], 3.0f);
}

}  // namespace
}  // namespace tessera::format
