// Files published by rename into a folder that contains other files.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>

#include <map>
#include <string>

namespace tessera::checkpoint {
namespace {

class Publish : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }
  void write(const std::string& name, const std::string& bytes) const { write_file_atomically(at(name), bytes); }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const std::string& name : list_folder(at("")))
      all[name] = is_directory(at(name)) ? "a folder" : read_file(at(name));
    return all;
  }
  TemporaryFolder folder_;
};

TEST_F(Publish, NewFilesTakeThePlacesOfOldOnes) {
  write("model-00001-of-00002.safetensors", "old 1");
  write("model-00002-of-00002.safetensors", "old 2");
  write("model.safetensors.index.json", "old index");
  write("config.json", "old");
  write("model-mine.safetensors", "mine");
  make_folders(at("model.tmp"));
  write("model.tmp/model.safetensors", "new");
  write("model.tmp/config.json", "new");
  publish_files(at("model.tmp"), at(""), is_weights_file);
  remove_tree(at("model.tmp"));
  EXPECT_EQ(files(), (std::map<std::string, std::string>{
                         {"config.json", "new"}, {"model.safetensors", "new"}, {"model-mine.safetensors", "mine"}}));
}

TEST_F(Publish, WhatFailsHalfWayIsTakenBack) {
  write("model.safetensors", "old");
  write("notes.txt", "mine");
  const auto before = files();
  make_folders(at("model.tmp"));
  write("model.tmp/model-00001-of-00002.safetensors", "new 1");
  write("model.tmp/model-00002-of-00002.safetensors", "new 2");
  write("model.tmp/model.safetensors.index.json", "new index");
  const auto replaces = [&](const std::string& name) {  // called before the first rename, so that the third one fails
    remove_tree(at("model.tmp/model.safetensors.index.json"));
    return is_weights_file(name);
  };
  EXPECT_THROW(publish_files(at("model.tmp"), at(""), replaces), Error);
  remove_tree(at("model.tmp"));
  EXPECT_EQ(files(), before);
}

TEST_F(Publish, FilesOfAModelAreKnownByTheirNames) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00003.safetensors"})
    EXPECT_TRUE(is_weights_file(name) && is_model_file(name)) << name;
  for (const char* name : {"config.json", "generation_config.json", "adapter_config.json", "adapter_model.safetensors"})
    EXPECT_TRUE(!is_weights_file(name) && is_model_file(name)) << name;
  for (const char* name : {"model-best.safetensors", "model-00001-of-00003.safetensors.bak", "optimizer.safetensors",
                           "tokenizer.json", "model_1.safetensors", "model-1-of-3.txt"})
    EXPECT_FALSE(is_model_file(name)) << name;
}

}  // namespace
}  // namespace tessera::checkpoint
