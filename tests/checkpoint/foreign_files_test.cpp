// Files that no save has written are never removed with a checkpoint, whether old checkpoints are pruned or one is
// replaced, renamed or cleaned up.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/format/manifest/manifest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::checkpoint {
namespace {

using Names = std::vector<std::string>;

class ForeignFiles : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }
  void write(const std::string& name, const std::string& bytes = "mine") const {
    make_folders(std::filesystem::path(at(name)).parent_path().string());
    write_file_atomically(at(name), bytes);
  }
  /// Writes checkpoint-STEP with two files and their manifest.
  std::string save(std::int64_t step, const std::string& name = "") const {
    const std::string folder = name.empty() ? step_folder(folder_.path(), step) : at(name);
    make_folders(folder);
    format::Manifest manifest{step, {}};
    for (const char* file : {"config.json", "model.safetensors"}) {
      write_file_atomically(path_join(folder, file), concat(file, " of ", step));
      manifest.files.push_back({file, format::digest_of_file(path_join(folder, file))});
    }
    format::write_manifest(folder, manifest);
    return folder;
  }
  std::string read(const std::string& name) const { return path_exists(at(name)) ? read_file(at(name)) : "missing"; }

  TemporaryFolder folder_;
  log::Quiet quiet_{log::Level::error};
};

TEST_F(ForeignFiles, AreFoundByTheManifestOrByName) {
  const std::string folder = save(1);
  EXPECT_EQ(foreign_path(folder), "");
  write("checkpoint-1/tokenizer.json");  // not in the manifest
  EXPECT_EQ(foreign_path(folder), path_join(folder, "tokenizer.json"));
  remove_tree(path_join(folder, "manifest.json"));
  EXPECT_EQ(foreign_path(folder), "");
  write("checkpoint-1/deep/notes.txt");
  EXPECT_EQ(foreign_path(folder), path_join(folder, "deep"));
  EXPECT_THROW(remove_written(folder), Error);
  EXPECT_EQ(read("checkpoint-1/deep/notes.txt"), "mine");
  EXPECT_EQ(foreign_path(at("none")), "");
}

TEST_F(ForeignFiles, StayWhenOldCheckpointsGo) {
  save(1);
  save(2);
  save(3);
  write("checkpoint-1/eval/results.txt");
  prune_step_folders(folder_.path(), 3, 1);
  EXPECT_EQ(list_folder(folder_.path()), (Names{"checkpoint-1", "checkpoint-3"}));
  EXPECT_EQ(list_folder(at("checkpoint-1")), Names{"eval"});
  EXPECT_EQ(read("checkpoint-1/eval/results.txt"), "mine");
}

TEST_F(ForeignFiles, GoOverIntoTheCheckpointThatReplacesTheirs) {
  save(5);
  write("checkpoint-5/notes.txt");
  write("checkpoint-5/new.json", "mine, too");
  const std::string made = save(5, "made");
  write("made/new.json", "of the save");
  publish_written_folder(made, at("checkpoint-5"));
  EXPECT_EQ(list_folder(folder_.path()), Names{"checkpoint-5"});
  EXPECT_EQ(read("checkpoint-5/notes.txt"), "mine");
  EXPECT_EQ(read("checkpoint-5/new.json"), "of the save");
  EXPECT_EQ(read("checkpoint-5/new.json.kept"), "mine, too");
}

TEST_F(ForeignFiles, KeepAFolderThatLooksHalfWritten) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  const std::string ours = concat("checkpoint-9.tmp.", dead), theirs = concat("checkpoint-8.tmp.", dead);
  write(ours + "/model.safetensors");
  write(ours + "/config.json.tmp.12");
  write(theirs + "/notes.md");
  remove_stale_folders(folder_.path());
  EXPECT_EQ(list_folder(folder_.path()), Names{theirs});
  EXPECT_EQ(read(theirs + "/notes.md"), "mine");
}

TEST_F(ForeignFiles, KeepWhatHasATemporaryName) {
  write("merged.tmp/src/a.py");
  EXPECT_THROW(publish_folder(at("merged"), [](const std::string&) {}), Error);
  EXPECT_EQ(read("merged.tmp/src/a.py"), "mine");
  EXPECT_FALSE(path_exists(at("merged")));
}

TEST_F(ForeignFiles, KeepAnOlderFolderThatWasSetAside) {
  const std::string folder = save(4);
  write("checkpoint-4.damaged/notes.txt");
  set_aside(folder, {Finding::Kind::damaged, "a flipped bit"});
  EXPECT_EQ(read("checkpoint-4.damaged/notes.txt"), "mine");
  EXPECT_TRUE(path_exists(folder)) << "skipped in place";
}

TEST_F(ForeignFiles, OfALinkNothingButTheLinkGoes) {
  save(1, "elsewhere");
  write("elsewhere/notes.txt");
  std::filesystem::create_directory_symlink(at("elsewhere"), at("checkpoint-5"));
  publish_written_folder(save(5, "made"), at("checkpoint-5"));
  EXPECT_EQ(list_folder(at("elsewhere")), (Names{"config.json", "manifest.json", "model.safetensors", "notes.txt"}));
  EXPECT_EQ(read("checkpoint-5/config.json"), "config.json of 5");
}

}  // namespace
}  // namespace tessera::checkpoint
