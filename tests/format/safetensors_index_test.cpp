// Weights in one file or in shards behind an index.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/safetensors/safetensors_index.h>

namespace tessera::format {
namespace {

class SafetensorsFolderTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }

  /// One F32 vector of `count` elements for each name.
  void write(const std::string& file, const std::vector<std::string>& names, std::int64_t count = 2) const {
    const std::vector<float> values(static_cast<std::size_t>(count), 1.0f);
    std::vector<TensorSource> sources;
    for (const std::string& name : names)
      sources.push_back({name, DType::f32, {count}, [&] { return std::as_bytes(std::span(values)); }});
    write_safetensors(at(file), std::move(sources));
  }
  void write_index(const std::vector<std::pair<std::string, std::string>>& map, std::int64_t total = 0) const {
    Value weight_map = Value::make_object();
    for (const auto& [tensor, file] : map) weight_map.set(tensor, Value::of(file));
    Value index = Value::make_object();
    if (total > 0) index.set("metadata", Value::make_object({{"total_size", Value::of(total)}}));
    index.set("weight_map", std::move(weight_map));
    write_file_atomically(at("model.safetensors.index.json"), dump_json(index));
  }
  void expect_refused(const std::string& path, const std::vector<std::string>& parts) const {
    try {
      const SafetensorsFolder weights(path);
      FAIL() << "accepted; expected '" << parts[0] << "'";
    } catch (const InputError& error) {
      const std::string text = error.what();
      for (const std::string& part : parts)
        EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
    }
  }
  const std::string& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST_F(SafetensorsFolderTest, OneFile) {
  write("model.safetensors", {"a", "b"});
  for (const std::string& path : {root(), at("model.safetensors")}) {
    const SafetensorsFolder weights(path);
    EXPECT_FALSE(weights.sharded());
    ASSERT_EQ(weights.tensors().size(), 2u);
    EXPECT_EQ(weights.paths(), std::vector<std::string>{at("model.safetensors")});
    EXPECT_EQ(weights.bytes(*weights.find("b")).size(), 8u);
    EXPECT_EQ(weights.find("c"), nullptr);
    EXPECT_EQ(weights.data_bytes(), 16u);
  }
}

TEST_F(SafetensorsFolderTest, Shards) {
  write("model-00001-of-00002.safetensors", {"b", "c"});
  write("model-00002-of-00002.safetensors", {"a"}, 5);
  write_index({{"a", "model-00002-of-00002.safetensors"},
               {"b", "model-00001-of-00002.safetensors"},
               {"c", "model-00001-of-00002.safetensors"}},
              36);
  for (const std::string& path : {root(), at("model.safetensors.index.json")}) {
    const SafetensorsFolder weights(path);
    EXPECT_TRUE(weights.sharded());
    EXPECT_EQ(weights.paths(), (std::vector<std::string>{at("model-00001-of-00002.safetensors"),
                                                         at("model-00002-of-00002.safetensors")}));
    ASSERT_EQ(weights.tensors().size(), 3u);
    EXPECT_EQ(weights.tensors()[0].info.name, "a");  // in the order of the index
    EXPECT_EQ(weights.find("a")->file, 1u);
    EXPECT_EQ(weights.find("c")->file, 0u);
    EXPECT_EQ(weights.bytes(*weights.find("a")).size(), 20u);
    EXPECT_EQ(weights.data_bytes(), 36u);
  }
}

TEST_F(SafetensorsFolderTest, ASingleFileWinsOverAnIndex) {
  write("model.safetensors", {"a"});
  write_index({{"a", "nowhere.safetensors"}});
  EXPECT_FALSE(SafetensorsFolder(root()).sharded());
}

TEST_F(SafetensorsFolderTest, FilesOutsideTheFolderAreRefused) {
  const std::vector<std::string> names = {"../model.safetensors",
                                          "/etc/model.safetensors",
                                          "sub/model.safetensors",
                                          "..",
                                          "",
                                          "model.bin",
                                          std::string("a\0.safetensors", 14)};
  for (const std::string& name : names) {
    write_index({{"weight", name}});
    expect_refused(root(), {"model.safetensors.index.json:", "'weight'", "directly inside the folder"});
  }
}

TEST_F(SafetensorsFolderTest, AllMissingShardsAtOnce) {
  write("model-2.safetensors", {"b"});
  write_index({{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}, {"c", "model-3.safetensors"}});
  expect_refused(root(), {"2 of the 3 listed shards", "model-1.safetensors, model-3.safetensors"});
}

TEST_F(SafetensorsFolderTest, TensorsThatAreNotInTheirShard) {
  write("model-1.safetensors", {"a"});
  write("model-2.safetensors", {"b"});
  write_index({{"a", "model-2.safetensors"}, {"b", "model-1.safetensors"}});
  expect_refused(root(), {"2 tensors are not in the shard", "'a' (model-2.safetensors)", "'b' (model-1.safetensors)"});
  write("model-2.safetensors", {"a", "b"});
  write_index({{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}});
  expect_refused(root(), {"'a'", "two shards", "model-1.safetensors and model-2.safetensors"});
}

TEST_F(SafetensorsFolderTest, DamagedShardsAndIndexes) {
  write("model-1.safetensors", {"a"});
  write_index({{"a", "model-1.safetensors"}});
  const std::string bytes = read_file(at("model-1.safetensors"));
  write_file_atomically(at("model-1.safetensors"), bytes.substr(0, bytes.size() - 1));
  expect_refused(root(), {"model-1.safetensors", "truncated"});
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{}", "weight_map"},
      {R"({"weight_map": {}})", "lists no tensor"},
      {R"({"weight_map": {"a": 3}})", "expected a string"},
      {R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})", "a"},
      {R"({"metadata": {"total_size": -1}, "weight_map": {"a": "x.safetensors"}})", "negative"},
      {"[", "model.safetensors.index.json"}};
  for (const auto& [text, part] : bad) {
    write_file_atomically(at("model.safetensors.index.json"), text);
    expect_refused(root(), {part});
  }
}

TEST_F(SafetensorsFolderTest, NoWeights) {
  expect_refused(root(), {"neither model.safetensors nor model.safetensors.index.json"});
  expect_refused(at("nowhere"), {"no such folder"});
  write_file_atomically(at("pytorch_model.bin"), "x");
  expect_refused(root(), {"pickle"});
  write("adapter_model.safetensors", {"a"});
  EXPECT_EQ(SafetensorsFolder(root(), "adapter_model").tensors().size(), 1u);
}

}  // namespace
}  // namespace tessera::format
