// Verification of a folder: every kind of damage, found by one caller and by several together.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/verify.h>
#include <tessera/format/safetensors/safetensors.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace tessera::format {
namespace {

constexpr std::uint64_t chunk = 65536;

class VerifyTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return path_join(folder(), name); }
  const std::string& folder() const { return folder_.path(); }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(at(name), std::ios::binary | std::ios::trunc) << bytes;
  }
  /// One F32 vector of `count` elements for each name.
  void write_tensors(const std::string& file, const std::vector<std::string>& names, std::int64_t count) const {
    const std::vector<float> values(static_cast<std::size_t>(count), 1.5f);
    std::vector<TensorSource> sources;
    for (const std::string& name : names)
      sources.push_back({name, DType::f32, {count}, [&] { return std::as_bytes(std::span(values)); }});
    write_safetensors(at(file), std::move(sources));
  }
  /// Writes a manifest of all files in the folder.
  void seal() const {
    Manifest manifest;
    manifest.step = 7;
    for (const std::string& name : list_folder(folder()))
      if (name != kManifestName) manifest.files.push_back({name, digest_of_file(at(name), chunk)});
    write_manifest(folder(), manifest);
  }
  void flip(const std::string& name, std::uint64_t byte) const {
    std::fstream file(at(name), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(byte));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(byte));
    file.put(static_cast<char>(old ^ 1));
  }
  std::string text() const { return verify_folder(folder()).text(); }

 private:
  TemporaryFolder folder_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(VerifyTest, AWholeFolderIsReadOnce) {
  write("config.json", "{}");
  write("empty", "");
  write_tensors("model.safetensors", {"a", "b"}, 50'000);
  seal();
  std::vector<std::uint64_t> done;
  std::uint64_t all = 0;
  const Verdict verdict = verify_folder(folder(), {}, [&](std::uint64_t now, std::uint64_t of) {
    done.push_back(now);
    all = of;
  });
  EXPECT_TRUE(verdict.whole()) << verdict.text();
  EXPECT_EQ(verdict.text(), "");
  EXPECT_EQ(verdict.manifest.step, 7);
  EXPECT_EQ(verdict.bytes_read, 2 + std::filesystem::file_size(at("model.safetensors")));
  EXPECT_EQ(all, verdict.bytes_read);
  ASSERT_EQ(done.size(), 8u);  // one per chunk: config.json and 400 KB
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), all);
}

TEST_F(VerifyTest, DamageIsNamedWithBytesAndTensors) {
  write_tensors("model.safetensors", {"a", "b", "c", "d", "e", "f"}, 16'384);  // one chunk each, shifted by the header
  seal();
  flip("model.safetensors", 3 * chunk);
  Verdict verdict = verify_folder(folder());
  ASSERT_EQ(verdict.damages.size(), 1u);
  EXPECT_EQ(verdict.damages[0].file, "model.safetensors");
  EXPECT_EQ(verdict.damages[0].begin, 3 * chunk);
  EXPECT_EQ(verdict.damages[0].end, 4 * chunk);
  EXPECT_EQ(verdict.damages[0].tensors, (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(verdict.text(), "model.safetensors: bytes 196608 to 262144 are damaged (c, d)");

  flip("model.safetensors", 2 * chunk - 1);  // not adjacent: two ranges
  flip("model.safetensors", 4 * chunk + 5);  // adjacent: one range of two chunks
  verdict = verify_folder(folder());
  ASSERT_EQ(verdict.damages.size(), 2u);
  EXPECT_EQ(verdict.damages[0].begin, chunk);
  EXPECT_EQ(verdict.damages[1].begin, 3 * chunk);
  EXPECT_EQ(verdict.damages[1].end, 5 * chunk);
  EXPECT_EQ(verdict.damages[1].tensors, (std::vector<std::string>{"c", "d", "e"}));
}

TEST_F(VerifyTest, ADamagedHeaderIsTheHeader) {
  write_tensors("model.safetensors", {"a", "b", "c", "d"}, 100);
  seal();
  flip("model.safetensors", 9);  // the quote before a name: invalid JSON
  const Verdict verdict = verify_folder(folder());
  ASSERT_EQ(verdict.damages.size(), 1u);
  EXPECT_EQ(verdict.damages[0].tensors, std::vector<std::string>{"the header"});
  flip("model.safetensors", 9);
  flip("model.safetensors", std::filesystem::file_size(at("model.safetensors")) - 1);
  EXPECT_TRUE(contains(text(), "are damaged (the header, a, b and 2 more)")) << text();
}

TEST_F(VerifyTest, FilesThatAreNotThereOrNotFiles) {
  write("a.json", "{}");
  write("b.json", "{}");
  seal();
  write("a.json", "{} ");
  EXPECT_EQ(text(), "a.json has 3 bytes instead of 2");
  remove_tree(at("a.json"));
  EXPECT_EQ(text(), "a.json is missing");
  EXPECT_EQ(verify_folder(folder()).damages[0].end, 2u);
  ASSERT_EQ(::symlink("b.json", at("a.json").c_str()), 0);  // the same bytes in another file
  EXPECT_TRUE(contains(text(), "a.json is a symbolic link")) << text();
  remove_tree(at("a.json"));
  ASSERT_EQ(::mkfifo(at("a.json").c_str(), 0600), 0);  // opening it for reading would block until a writer comes
  EXPECT_EQ(text(), "a.json is not a regular file");
  remove_tree(at("a.json"));
  make_folders(at("a.json"));
  EXPECT_EQ(text(), "a.json is not a regular file");
}

TEST_F(VerifyTest, ManifestsThatCannotBeRead) {
  EXPECT_TRUE(contains(text(), "it has no manifest.json")) << text();
  EXPECT_EQ(verify_folder(folder()).damages[0].file, "manifest.json");
  EXPECT_TRUE(contains(verify_folder(at("nowhere")).text(), "it has no manifest.json"));
  write("a.json", "{}");
  seal();
  std::filesystem::rename(at("manifest.json"), at("elsewhere"));
  ASSERT_EQ(::symlink("elsewhere", at("manifest.json").c_str()), 0);
  EXPECT_TRUE(contains(text(), "manifest.json is a symbolic link")) << text();
  remove_tree(at("manifest.json"));
  ASSERT_EQ(::mkfifo(at("manifest.json").c_str(), 0600), 0);
  EXPECT_TRUE(contains(text(), "manifest.json is not a regular file")) << text();
  remove_tree(at("manifest.json"));
  std::string list = read_file(at("elsewhere"));
  list[list.find("a.json")] = 'b';
  write("manifest.json", list);
  EXPECT_TRUE(contains(text(), "the manifest is damaged")) << text();
  EXPECT_TRUE(verify_folder(folder()).manifest.files.empty());
}

TEST_F(VerifyTest, NamesCannotForgeLines) {
  write("a\nwhole: b\x1b[2J", "{}");
  seal();
  remove_tree(at("a\nwhole: b\x1b[2J"));
  EXPECT_EQ(text(), "a?whole: b?[2J is missing");
  EXPECT_EQ(verify_folder(folder()).damages[0].file, "a\nwhole: b\x1b[2J");
}

TEST_F(VerifyTest, WhatAnIndexNamesMustBeListed) {
  write_tensors("model-00001-of-00002.safetensors", {"a"}, 10);
  write_tensors("model-00002-of-00002.safetensors", {"b"}, 10);
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  write_tensors("optimizer-00001-of-00001.safetensors", {"m"}, 10);
  write("optimizer.safetensors.index.json",
        R"({"format": "tessera-pieces-1", "tensors": {"m": {"dtype": "F32", "shape": [10],
      "pieces": [{"file": "optimizer-00001-of-00001.safetensors", "begin": 0, "end": 10}]}}})");
  seal();
  EXPECT_EQ(text(), "");
  write_tensors("model.safetensors", {"a", "b"}, 10);  // readers prefer this file
  EXPECT_TRUE(contains(text(), "model.safetensors is not listed in manifest.json, but would be read instead"))
      << text();
  seal();
  EXPECT_EQ(text(), "");
  remove_tree(at("model.safetensors"));

  for (const char* name :
       {"model-00002-of-00002.safetensors", "optimizer-00001-of-00001.safetensors", "model.safetensors.index.json"}) {
    Manifest manifest;
    for (const std::string& file : list_folder(folder()))
      if (file != kManifestName && file != name) manifest.files.push_back({file, digest_of_file(at(file), chunk)});
    write_manifest(folder(), manifest);
    EXPECT_TRUE(contains(text(), name) && contains(text(), "list")) << text();
    EXPECT_TRUE(verify_folder(folder(), {1, 2}).whole());  // only one caller reports it
  }
  write("model.safetensors.index.json", "{");
  seal();
  EXPECT_TRUE(contains(text(), "model.safetensors.index.json:1:")) << text();
}

TEST_F(VerifyTest, SharesAreDisjointCompleteAndAlike) {
  const std::vector<std::uint64_t> sizes = {10, 0, 5 * chunk + 3, 1, chunk, 2 * chunk};
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    write(concat("file", i), std::string(sizes[i], static_cast<char>('a' + i)));
    total += sizes[i];
  }
  seal();
  for (const int ranks : {1, 2, 3, 5, 8, 100}) {
    std::uint64_t read = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Verdict verdict = verify_folder(folder(), {rank, ranks});
      EXPECT_TRUE(verdict.whole()) << verdict.text();
      EXPECT_LE(verdict.bytes_read, total / static_cast<std::uint64_t>(ranks) + chunk);
      read += verdict.bytes_read;
    }
    EXPECT_EQ(read, total);
  }
  // One flipped bit anywhere: exactly one of the callers finds it and its location.
  EXPECT_TRUE(rc::check([&] {
    const auto any_of = [](std::uint64_t end) {
      return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, end));
    };
    const std::size_t file = *rc::gen::elementOf(std::vector<std::size_t>{0, 2, 3, 4, 5});
    const std::uint64_t byte = any_of(sizes[file]);
    const int ranks = 1 + static_cast<int>(any_of(6));
    flip(concat("file", file), byte);
    int found = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Verdict verdict = verify_folder(folder(), {rank, ranks});
      if (verdict.whole()) continue;
      ++found;
      RC_ASSERT(verdict.damages.size() == 1u);
      RC_ASSERT(verdict.damages[0].file == concat("file", file));
      RC_ASSERT(verdict.damages[0].begin <= byte && byte < verdict.damages[0].end);
    }
    flip(concat("file", file), byte);
    RC_ASSERT(found == 1);
  }));
  EXPECT_THROW(verify_folder(folder(), {0, 0}), Error);
  EXPECT_THROW(verify_folder(folder(), {2, 2}), Error);
  EXPECT_THROW(verify_folder(folder(), {-1, 2}), Error);
}

TEST_F(VerifyTest, AFileThatIsCutWhileItIsReadIsAFinding) {
  write("data", std::string(20 * chunk, 'x'));
  seal();
  bool cut = false;
  const Verdict verdict = verify_folder(folder(), {}, [&](std::uint64_t, std::uint64_t) {
    if (!cut) std::filesystem::resize_file(at("data"), 10);
    cut = true;
  });
  ASSERT_EQ(verdict.damages.size(), 1u);
  EXPECT_EQ(verdict.text(), concat("data: bytes ", chunk, " to ", 20 * chunk,
                                   " cannot be read: the file was truncated while it was read"));
}

TEST_F(VerifyTest, WhatWasReadBeforeIsNotReadAgain) {
  write("config.json", "{}");
  write_tensors("model.safetensors", {"a", "b"}, 50'000);
  seal();
  const std::string bytes = read_file(at("model.safetensors"));
  ReadSums read(folder(), read_manifest(folder()));
  const std::size_t model = read.file_at(at("model.safetensors")).value();
  const auto note = [&](std::uint64_t begin, std::uint64_t end) {
    ReadRun run(&read, model, begin);
    run.take(std::as_bytes(std::span(bytes)).subspan(begin, end - begin));
    run.end();
  };
  note(1000, 3 * chunk + 5);
  note(3 * chunk + 5, 5 * chunk);
  Verdict verdict = verify_folder(folder(), {}, {}, &read);
  EXPECT_TRUE(verdict.whole()) << verdict.text();
  EXPECT_EQ(verdict.bytes_read, 2 + bytes.size() - (5 * chunk - 1000));

  flip("model.safetensors", 999);        // not among the bytes read
  flip("model.safetensors", 2 * chunk);  // changed after it was read: the loaded data is right
  verdict = verify_folder(folder(), {}, {}, &read);
  ASSERT_EQ(verdict.damages.size(), 1u) << verdict.text();
  EXPECT_EQ(verdict.damages[0].begin, 0u);
  EXPECT_EQ(verdict.damages[0].end, chunk);

  write("config.json", "[]");
  seal();  // now another checkpoint, so the record does not apply
  EXPECT_TRUE(verify_folder(folder(), {}, {}, &read).whole());
  EXPECT_EQ(verify_folder(folder(), {}, {}, &read).bytes_read, 2 + bytes.size());
}

}  // namespace
}  // namespace tessera::format
