// --overwrite_output_dir removes files that a list or a manifest proves to be a run's, and nothing else, whatever the
// folder contains.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/config/sections/output_config.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/train/reporting/run_files.h>
#include <tests/error_of.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using tessera::testing::error_of;
using Tree = std::map<std::string, std::string>;  // path -> bytes; "a folder" for a folder

Tree tree_of(const std::string& root) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    tree[fs::relative(entry.path(), root).string()] = entry.is_symlink()     ? "a link"
                                                      : entry.is_directory() ? "a folder"
                                                                             : read_file(entry.path().string());
  return tree;
}

OutputConfig output_of(const std::string& folder, bool overwrite) {
  OutputConfig output;
  output.output_dir = folder;
  output.overwrite_output_dir = overwrite;
  return output;
}

void write_below(const std::string& folder, const std::string& name, const std::string& bytes) {
  const std::string path = path_join(folder, name);
  make_folders(fs::path(path).parent_path().string());
  write_file_atomically(path, bytes);
}

/// Makes the files of a run and returns their names.
std::vector<std::string> make_run(const std::string& folder) {
  prepare_output_folder(output_of(folder, false), "", true, true);
  std::vector<std::string> names = {"metrics.jsonl",
                                    "report.html",
                                    "runs/events.out.tfevents.1.host.2.0",
                                    "merged/config.json",
                                    "merged/model.safetensors",
                                    "config.json",
                                    "model.safetensors"};
  RunFiles(folder).add(names);
  for (const std::string& name : names) write_below(folder, name, "of the run: " + name);
  for (const std::int64_t step : {3, 6}) {
    const std::string checkpoint = checkpoint::step_folder(folder, step);
    write_below(checkpoint, "model.safetensors", concat("weights of ", step));
    format::write_manifest(
        checkpoint,
        {step, {{"model.safetensors", format::digest_of_file(path_join(checkpoint, "model.safetensors"))}}});
    for (const char* name : {"model.safetensors", "manifest.json"})
      names.push_back(concat("checkpoint-", step, "/", name));
  }
  names.push_back(kRunFilesList);
  return names;
}

/// Names that a run uses, and others, so that collisions are frequent.
const std::vector<std::string> pool = {"metrics.jsonl",
                                       "metrics.csv",
                                       "report.html",
                                       "runs",
                                       "mlruns",
                                       "merged",
                                       "checkpoint-3",
                                       "checkpoint-500",
                                       "checkpoint-x",
                                       "src",
                                       "a.py",
                                       "notes.txt",
                                       "config.json",
                                       "tokenizer.json",
                                       ".gitkeep",
                                       "model.tmp",
                                       "model.safetensors",
                                       "checkpoint-3.damaged",
                                       "manifest.json",
                                       "README.md",
                                       "lost+found",
                                       "train.log",
                                       "merged.tmp",
                                       "checkpoint-3.tmp.1",
                                       "trace.json",
                                       "keep",
                                       "events"};

/// Creates a user's files at unused paths; returns their paths and bytes.
Tree scatter(const std::string& root) {
  Tree mine;
  const auto count = *rc::gen::inRange<std::size_t>(0, 9);
  for (std::size_t i = 0; i < count; ++i) {
    std::string name;
    const auto depth = *rc::gen::inRange<int>(1, 4);
    for (int d = 0; d < depth; ++d)
      name = d == 0 ? *rc::gen::elementOf(pool) : concat(name, "/", *rc::gen::elementOf(pool));
    const std::string path = path_join(root, name), bytes = *rc::gen::arbitrary<std::string>();
    bool free = !path_exists(path);
    for (fs::path above = fs::path(path).parent_path(); above.string().size() > root.size();
         above = above.parent_path())
      free = free && (!path_exists(above.string()) || is_directory(above.string()));
    if (!free) continue;
    if (*rc::gen::inRange(0, 8) == 0) {
      make_folders(path);
      mine[name] = "a folder";
      continue;
    }
    write_below(root, name, bytes);
    mine[name] = bytes;
  }
  return mine;
}

void expect_all_there(const Tree& mine, const std::string& root) {
  const Tree now = tree_of(root);
  for (const auto& [name, bytes] : mine) {
    RC_LOG() << name << std::endl;
    RC_ASSERT(now.contains(name));
    RC_ASSERT(now.at(name) == bytes);
  }
}

RC_GTEST_PROP(RunFiles, WhatAPersonHasThereSurvives, ()) {
  const TemporaryFolder around;
  const std::string out = path_join(around.path(), "out");
  const bool run_before = *rc::gen::arbitrary<bool>(), merges = *rc::gen::arbitrary<bool>(),
             overwrite = *rc::gen::inRange(0, 4) > 0;
  std::vector<std::string> of_run;
  if (run_before) of_run = make_run(out);
  make_folders(out);
  const Tree inside = scatter(out), beside = scatter(around.path());
  const Tree before = tree_of(around.path());
  std::optional<std::string> refused;
  try {
    prepare_output_folder(output_of(out, overwrite), "", true, merges);
  } catch (const InputError& error) {
    refused = error.what();
  }
  if (refused) {
    RC_ASSERT(tree_of(around.path()) == before);  // nothing was changed
    RC_ASSERT(refused->find(out + "/") != std::string::npos);
    const std::string named = refused->substr(refused->find(out));
    RC_ASSERT(path_exists(named.substr(0, named.find(" is in the way"))));
    return;
  }
  expect_all_there(inside, out);
  expect_all_there(beside, around.path());
  if (!overwrite) return;
  for (const std::string& name : of_run) {
    const bool stays = name == "config.json" || name == "model.safetensors" || name == kRunFilesList;
    RC_ASSERT(path_exists(path_join(out, name)) == stays);
  }
}

TEST(RunFiles, AFolderWithoutARunIsNotEmptied) {
  const TemporaryFolder around;
  const std::string out = path_join(around.path(), "out");
  write_below(out, "merged/src/a.py", "x");
  write_below(out, "runs/events", "x");
  write_below(out, "mlruns/0/meta.yaml", "x");
  prepare_output_folder(output_of(out, true), "", true, false);
  for (const char* name : {"merged/src/a.py", "runs/events", "mlruns/0/meta.yaml"})
    EXPECT_EQ(read_file(path_join(out, name)), "x");
  write_below(out, "checkpoint-500/keep", "x");
  const std::string error = error_of([&] { prepare_output_folder(output_of(out, true), "", true, false); });
  EXPECT_NE(error.find(path_join(out, "checkpoint-500") + " is in the way"), std::string::npos) << error;
  EXPECT_NE(error.find("choose another folder"), std::string::npos) << error;
  EXPECT_EQ(read_file(path_join(out, "checkpoint-500/keep")), "x");
}

/// The previous run's files are removed, down to the last folder; a note in its checkpoint is named in the error, and
/// then everything stays.
TEST(RunFiles, AFormerRunGoesAndANoteInItIsNamed) {
  const TemporaryFolder around;
  const std::string out = path_join(around.path(), "out");
  make_run(out);
  write_below(out, "checkpoint-6/notes.txt", "x");
  const Tree before = tree_of(out);
  const std::string error = error_of([&] { prepare_output_folder(output_of(out, true), "", true, true); });
  EXPECT_NE(error.find(path_join(out, "checkpoint-6/notes.txt")), std::string::npos) << error;
  EXPECT_EQ(tree_of(out), before);
  remove_tree(path_join(out, "checkpoint-6/notes.txt"));
  prepare_output_folder(output_of(out, true), "", true, true);
  EXPECT_EQ(list_folder(out), (std::vector<std::string>{kRunFilesList, "config.json", "model.safetensors"}));
}

/// Runs as another user if this process is root, which has all permissions.
TEST(RunFiles, AWriteProtectedFolderIsNamedBeforeAnythingGoes) {
  const TemporaryFolder around;
  const std::string out = path_join(around.path(), "out");
  ASSERT_EQ(::chmod(around.path().c_str(), 0777), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0))
      ::_exit(2);
    make_run(out);
    int wrong = 0;
    for (const char* name : {"checkpoint-6", "merged", "runs"}) {
      const std::string locked = path_join(out, name);
      ::chmod(locked.c_str(), 0555);
      const Tree before = tree_of(out);
      const std::string error = error_of([&] { prepare_output_folder(output_of(out, true), "", true, true); });
      const bool named = error.find(locked + " is write-protected") != std::string::npos;
      if (!named || tree_of(out) != before) std::cerr << name << ": " << error << "\n", ++wrong;
      ::chmod(locked.c_str(), 0755);
    }
    ::_exit(wrong);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

/// A run takes over only the folder of one of our checkpoints, including checkpoints from before there was a list.
TEST(RunFiles, AResumedRunTakesItsFolderOver) {
  const TemporaryFolder around;
  const std::string out = path_join(around.path(), "out"), other = path_join(around.path(), "other");
  make_run(out);
  remove_tree(path_join(out, kRunFilesList));
  prepare_output_folder(output_of(out, false), path_join(out, "checkpoint-6"), true, false);
  EXPECT_TRUE(RunFiles(out).holds("metrics.jsonl"));
  EXPECT_TRUE(RunFiles(out).holds("model.safetensors"));
  write_below(other, "metrics.jsonl", "mine");
  const std::string error =
      error_of([&] { prepare_output_folder(output_of(other, false), path_join(out, "checkpoint-6"), true, false); });
  EXPECT_NE(error.find(path_join(other, "metrics.jsonl")), std::string::npos) << error;
}

TEST(RunFiles, AListNamesNothingOutsideOfItsFolder) {
  const TemporaryFolder around;
  const std::string out = path_join(around.path(), "out");
  write_below(around.path(), "thesis.txt", "x");
  write_below(out, kRunFilesList, concat("../thesis.txt\n", around.path(), "/thesis.txt\nruns/../../thesis.txt\n"));
  RunFiles(out).remove_all();
  EXPECT_EQ(read_file(path_join(around.path(), "thesis.txt")), "x");
}

}  // namespace
}  // namespace tessera::train
