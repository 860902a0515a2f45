// Files of torch.save and of torch.distributed.checkpoint, written by PyTorch 2.11 (tests/parity/make_torch_files.py).

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/torch/dcp.h>
#include <tessera/format/torch/pickle.h>
#include <tessera/format/torch/torch_file.h>
#include <tessera/format/torch/zip.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include <cstring>
#include <functional>
#include <map>

namespace tessera::format {
namespace {

using namespace std::string_literals;
using tessera::testing::error_of;

std::string fixture(const std::string& name) {
  return tessera::testing::source_path("tests/fixtures/torch_files/" + name);
}
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// The values 0, 0.5, 1, ... of a contiguous fp32 tensor that the script writes.
std::vector<float> floats(const std::string& file, const TorchTensor& tensor) {
  std::vector<float> values((tensor.end - tensor.begin) / 4);
  std::memcpy(values.data(), file.data() + tensor.begin, tensor.end - tensor.begin);
  return values;
}

TEST(TorchFile, a_state_dict) {
  const std::string file = read_file(fixture("state_dict.bin"));
  const TorchFile parsed = parse_torch_file(bytes_of(file), "state_dict.bin");
  verify_torch_file(bytes_of(file), parsed, "state_dict.bin");
  std::map<std::string, const TorchTensor*> by_name;
  std::string order;
  for (const TorchTensor& t : parsed.tensors) {
    by_name[t.name] = &t;
    order += t.name + " ";
  }
  EXPECT_EQ(order, "embed.weight head.weight half brain turned part count flags none parameter ");
  EXPECT_EQ(by_name.at("embed.weight")->shape, (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(floats(file, *by_name.at("embed.weight"))[11], 5.5f);
  EXPECT_EQ(by_name.at("embed.weight")->storage, by_name.at("head.weight")->storage);
  EXPECT_EQ(by_name.at("embed.weight")->begin, by_name.at("head.weight")->begin);
  EXPECT_EQ(by_name.at("half")->dtype, DType::f16);
  EXPECT_EQ(by_name.at("brain")->dtype, DType::bf16);
  EXPECT_FALSE(by_name.at("turned")->contiguous());
  EXPECT_EQ(by_name.at("turned")->strides, (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(floats(file, *by_name.at("part")), (std::vector<float>{2, 2.5f, 3}));
  EXPECT_EQ(by_name.at("count")->dtype, DType::i64);
  EXPECT_TRUE(by_name.at("count")->shape.empty());
  EXPECT_EQ(by_name.at("flags")->dtype, DType::boolean);
  EXPECT_EQ(by_name.at("none")->end - by_name.at("none")->begin, 0u);
  EXPECT_EQ(floats(file, *by_name.at("parameter")), (std::vector<float>{0, 0.5f, 1, 1.5f}));
}

TEST(TorchFile, nested_dicts_and_a_lone_tensor) {
  const std::string nested = read_file(fixture("nested.bin"));
  const TorchFile parsed = parse_torch_file(bytes_of(nested), "nested.bin");
  ASSERT_EQ(parsed.tensors.size(), 1u);
  EXPECT_EQ(parsed.tensors[0].name, "model.w");
  EXPECT_EQ(parsed.tensors[0].group, "model");
  EXPECT_EQ(parsed.left_aside, (std::vector<std::string>{"step", "names"}));
  const std::string lone = read_file(fixture("tensor.bin"));
  EXPECT_EQ(parse_torch_file(bytes_of(lone), "tensor.bin").tensors.at(0).name, "");
}

TEST(TorchFile, what_is_refused) {
  const std::string old = read_file(fixture("before_1.6.bin"));
  EXPECT_EQ(error_of([&] { (void)parse_torch_file(bytes_of(old), "old.bin"); }),
            "old.bin: not a file of torch.save in its ZIP format but a bare pickle, as PyTorch before 1.6 wrote; load "
            "and save it once with a newer one");
  const std::string code = read_file(fixture("with_a_function.bin"));
  EXPECT_NE(error_of([&] { (void)parse_torch_file(bytes_of(code), "code.bin"); })
                .find("the file refers to posixpath.join, which is not an allowed name in this kind of file; reading "
                      "stops here"),
            std::string::npos);
}

/// Damaged descriptions are refused or read safely: no crash, no hang, and no tensor outside the file.
RC_GTEST_PROP(TorchFile, damage_is_found_or_harmless, ()) {
  static const std::string whole = read_file(fixture("state_dict.bin"));
  std::string file = whole;
  const auto changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i)
    file[*rc::gen::inRange<std::size_t>(0, file.size())] = static_cast<char>(*rc::gen::arbitrary<std::uint8_t>());
  if (*rc::gen::inRange(0, 4) == 0) file.resize(*rc::gen::inRange<std::size_t>(0, file.size()));
  try {
    const TorchFile parsed = parse_torch_file(bytes_of(file), "damaged");
    for (const TorchTensor& t : parsed.tensors) RC_ASSERT(t.begin <= t.end && t.end <= file.size());
    verify_torch_file(bytes_of(file), parsed, "damaged");
  } catch (const InputError&) {
  }
}

TEST(Zip, checksum_has_the_published_value) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32({}), 0u);
}

TEST(Zip, a_flipped_bit_in_a_storage_is_found) {
  std::string file = read_file(fixture("tensor.bin"));
  const TorchFile parsed = parse_torch_file(bytes_of(file), "tensor.bin");
  file[parsed.tensors[0].begin + 5] ^= 16;
  EXPECT_NE(error_of([&] { verify_torch_file(bytes_of(file), parsed, "tensor.bin"); }).find("the file is damaged"),
            std::string::npos);
}

TEST(Pickle, values) {
  const auto parse = [](const std::string& text) { return parse_pickle(bytes_of(text), "p", {}); };
  EXPECT_EQ(parse(std::string("\x80\x02K\x07.", 5)).root().integer, 7);
  EXPECT_EQ(parse("J\xff\xff\xff\xff.").root().integer, -1);
  EXPECT_EQ(parse(std::string("\x8a\x02\x00\x80.", 5)).root().integer, -32768);
  EXPECT_EQ(parse(std::string("G\x3f\xf8\0\0\0\0\0\0.", 10)).root().real, 1.5);
  const Pickle list = parse("](K\001K\002e.");
  EXPECT_EQ(list.root().items.size(), 2u);
  EXPECT_EQ(list[list.root().items[1]].integer, 2);
  const Pickle dict = parse("}X\x01\0\0\0aK\x05s."s);
  ASSERT_NE(dict.find(dict.root(), "a"), nullptr);
  EXPECT_EQ(dict.find(dict.root(), "a")->integer, 5);
}

// Items set in or appended to an object without a state leave its state absent, whatever the fill level of the value
// storage.
TEST(Pickle, items_of_an_object_come_after_its_state) {
  static constexpr std::string_view allowed[] = {"collections."};
  for (const int others : {0, 1, 2, 3, 6, 7, 14, 15, 30, 31}) {  // varies the fill of the value storage
    std::string text = "(";
    for (int i = 0; i < others; ++i) text += 'N';
    text += "1ccollections\nOrderedDict\n)R";
    for (const auto& [items, first] : {std::pair("(K\x07K\x08u."s, 7), std::pair("K\011a."s, 9)}) {
      const Pickle object = parse_pickle(bytes_of(text + items), "p", allowed);
      ASSERT_EQ(object.root().items.size(), first == 7 ? 5u : 4u) << others;
      EXPECT_EQ(object.state(object.root()), nullptr);
      EXPECT_EQ(object[object.root().items[3]].integer, first);
    }
  }
}

TEST(Pickle, what_is_refused) {
  const auto error = [](std::string_view text) {
    return error_of([&] { (void)parse_pickle(bytes_of(std::string(text)), "p", {}); });
  };
  EXPECT_EQ(error("cos\nsystem\n."),
            "p: at byte 0 of the pickle: the file refers to os.system, which is not an allowed name in this kind of "
            "file; reading stops here");
  EXPECT_EQ(error("K"), "p: at byte 0 of the pickle: 1 bytes are needed, but 0 are left: the data is truncated");
  EXPECT_EQ(error("."), "p: at byte 0 of the pickle: the end comes with 0 values on the stack");
  EXPECT_EQ(error("NR."), "p: at byte 1 of the pickle: the stack is empty");
  EXPECT_EQ(error("NNR."), "p: at byte 2 of the pickle: the callable is a None, not a name");
  EXPECT_EQ(error("h\x01."), "p: at byte 0 of the pickle: nothing is stored in the memo as 1");
  EXPECT_EQ(error(std::string_view("\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", 10)).substr(0, 60),
            "p: at byte 0 of the pickle: 9223372036854775807 bytes are ne");
}

TEST(Dcp, a_folder_of_two_ranks) {
  DcpFolder folder(fixture("dcp"));
  std::map<std::string, std::vector<float>> found;
  for (const DcpTensor& tensor : folder.metadata().tensors) {
    std::size_t elements = 1;
    for (const std::int64_t n : tensor.shape) elements *= static_cast<std::size_t>(n);
    std::vector<float>& whole = found[tensor.name];
    whole.resize(elements, -1);
    for (const DcpBox& box : tensor.boxes) {
      const auto bytes = folder.bytes(tensor, box);
      ASSERT_EQ(bytes.size() % dtype_size(tensor.dtype), 0u);
      if (tensor.dtype != DType::f32 || tensor.shape.size() != 2) continue;
      for (std::int64_t r = 0; r < box.sizes[0]; ++r)
        std::memcpy(&whole[static_cast<std::size_t>((box.offsets[0] + r) * tensor.shape[1] + box.offsets[1])],
                    bytes.data() + r * box.sizes[1] * 4, static_cast<std::size_t>(box.sizes[1]) * 4);
    }
  }
  ASSERT_EQ(found.size(), 4u);
  for (const char* name : {"model.rows", "model.columns"})
    for (std::size_t i = 0; i < found.at(name).size(); ++i)
      EXPECT_EQ(found.at(name)[i], static_cast<float>(i) / 2) << name << " " << i;
  EXPECT_TRUE(found.contains("model.whole"));
  EXPECT_TRUE(found.contains("optimizer.step"));
  EXPECT_EQ(folder.metadata().left_aside, (std::vector<std::string>{"epoch"}));
}

RC_GTEST_PROP(Dcp, damaged_metadata_is_found_or_harmless, ()) {
  static const std::string whole = read_file(fixture("dcp/.metadata"));
  std::string file = whole;
  const auto changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i)
    file[*rc::gen::inRange<std::size_t>(0, file.size())] = static_cast<char>(*rc::gen::arbitrary<std::uint8_t>());
  try {
    for (const DcpTensor& tensor : parse_dcp_metadata(bytes_of(file), "damaged").tensors)
      for (const DcpBox& box : tensor.boxes)
        for (std::size_t d = 0; d < tensor.shape.size(); ++d)
          RC_ASSERT(box.offsets[d] + box.sizes[d] <= tensor.shape[d]);
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace tessera::format
