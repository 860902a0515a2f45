#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tests/paths.h>

namespace tessera::checkpoint {
namespace {

class HfFolderTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return path_join(folder_.path(), name); }
  void write_shard(const std::string& name, const NamedTensors& tensors) const {
    std::vector<format::TensorSource> sources;
    for (const auto& [tensor_name, tensor] : tensors) sources.push_back(tensor_source(tensor_name, tensor));
    format::write_safetensors(file(name), sources);
  }
  void write_index(const std::string& weight_map) const {
    write_file_atomically(file("model.safetensors.index.json"),
                          R"({"metadata": {"total_size": 1}, "weight_map": )" + weight_map + "}");
  }
  std::string complaint() const {
    try {
      read_hf_weights(folder_.path());
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  void expect_complaint(const std::string& part) const {
    EXPECT_NE(complaint().find(part), std::string::npos) << "'" << complaint() << "' lacks '" << part << "'";
  }

  TemporaryFolder folder_;
};

TEST_F(HfFolderTest, EveryDtypeShapeAndStrideSurvives) {
  NamedTensors tensors;
  for (const at::ScalarType type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kUInt16, at::kInt, at::kUInt32,
                                    at::kLong, at::kUInt64, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    tensors.emplace_back(c10::toString(type), at::randint(0, 2, {3, 4}).to(type));
  }
  tensors.emplace_back("scalar", at::scalar_tensor(1.5));
  tensors.emplace_back("empty", at::empty({0, 3}));
  tensors.emplace_back("transposed", at::randn({3, 5}).t());
  tensors.emplace_back("part", at::randn({6, 5}).slice(1, 1, 3));
  tensors.emplace_back("parameter", at::randn({2}).requires_grad_());
  write_shard("model.safetensors", tensors);
  const NamedTensors read = read_hf_weights(folder_.path());
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto found = std::find_if(read.begin(), read.end(), [&](const auto& one) { return one.first == name; });
    ASSERT_NE(found, read.end()) << name;
    EXPECT_EQ(found->second.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(found->second.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(found->second.is_contiguous()) << name;
    EXPECT_FALSE(found->second.requires_grad()) << name;
    const auto bytes = [](const at::Tensor& t) { return t.detach().contiguous().reshape(-1).view(at::kByte); };
    EXPECT_TRUE(at::equal(bytes(found->second), bytes(tensor))) << name;
  }
}

// The fixture was made by the reference writer (tests/parity/safetensors_fixture.py).
TEST_F(HfFolderTest, ReadingAndWritingAReferenceFileGivesTheSameBytes) {
  const std::string reference =
      read_file(tessera::testing::source_path("tests/fixtures/safetensors/mixed.safetensors"));
  write_file_atomically(file("model.safetensors"), reference);
  const NamedTensors tensors = read_hf_weights(folder_.path());
  write_hf_folder(folder_.path(), tensors, Value::make_object(), nullptr);
  EXPECT_EQ(read_file(file("model.safetensors")), reference);
}

TEST_F(HfFolderTest, ShardsAreReadThroughTheirIndex) {
  const at::Tensor a = at::randn({2, 2}), b = at::randn({3});
  write_shard("model-00001-of-00002.safetensors", {{"a", a}});
  write_shard("model-00002-of-00002.safetensors", {{"b", b}});
  write_index(R"({"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"})");
  const NamedTensors read = read_hf_weights(folder_.path());
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].first, "b");
  EXPECT_TRUE(at::equal(read[0].second, b));
  EXPECT_TRUE(at::equal(read[1].second, a));
}

TEST_F(HfFolderTest, IndexAndShardsMustBelongTogether) {
  write_shard("s.safetensors", {{"a", at::ones({1})}});
  write_index(R"({"a": "s.safetensors", "b": "s.safetensors"})");
  expect_complaint("1 tensor is not in the shard that the index names");
  expect_complaint("'b' (s.safetensors)");
  write_index(R"({"a": "absent.safetensors"})");
  expect_complaint("absent.safetensors");
  write_index(R"({"a": 3})");
  expect_complaint("expected a string");
}

TEST_F(HfFolderTest, AnIndexMayNotLeaveTheFolder) {
  const TemporaryFolder elsewhere;
  for (const std::string& name : {std::string("../s.safetensors"), std::string("/etc/passwd"), std::string(".."),
                                  std::string("sub/s.safetensors"), std::string()}) {
    write_index("{\"a\": \"" + name + "\"}");
    expect_complaint("a shard must be a .safetensors file directly inside the folder");
  }
}

TEST_F(HfFolderTest, FoldersWithoutWeights) {
  expect_complaint("has neither model.safetensors nor model.safetensors.index.json");
  write_file_atomically(file("pytorch_model.bin"), "x");
  expect_complaint("is a pickle, which is never read");
  EXPECT_THROW(read_hf_weights(file("absent")), InputError);
}

TEST_F(HfFolderTest, DamagedWeightsAreRefused) {
  write_file_atomically(file("model.safetensors"), "abc");
  expect_complaint("model.safetensors: not a safetensors file: it has 3 bytes");
  write_shard("model.safetensors", {{"flag", at::ones({4}, at::kBool)}});
  std::string bytes = read_file(file("model.safetensors"));
  bytes.back() = 2;
  write_file_atomically(file("model.safetensors"), bytes);
  expect_complaint("tensor 'flag': BOOL element 3 is 2");
}

TEST_F(HfFolderTest, TypesThatTheFormatLacks) {
  EXPECT_THROW(tensor_source("c", at::zeros({1}, at::kComplexFloat)), Error);
  EXPECT_THROW(tensor_source("undefined", at::Tensor()), Error);
}

}  // namespace
}  // namespace tessera::checkpoint
