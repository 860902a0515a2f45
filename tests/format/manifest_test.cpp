#include <tessera/format/manifest/manifest.h>

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera::format {
namespace {

// The message of the InputError that `action` throws; "" if it does not throw.
template <class Action>
std::string complaint(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class ManifestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file_atomically(file("a.bin"), std::string(kDigestChunk + 10, 'a'));
    write_file_atomically(file("b.json"), "{}");
    write_file_atomically(file("empty"), "");
    manifest_.step = 7;
    for (const char* name : {"a.bin", "b.json", "empty"}) manifest_.files.push_back({name, digest_of_file(file(name))});
    write_manifest(folder_.path(), manifest_);
  }
  std::string file(const std::string& name) const { return path_join(folder_.path(), name); }
  std::string verify() const {
    return complaint([&] { verify_sizes(folder_.path(), read_manifest(folder_.path())); });
  }

  TemporaryFolder folder_;
  Manifest manifest_;
};

TEST_F(ManifestTest, ReadsBackWhatWasWritten) {
  const Manifest read = read_manifest(folder_.path());
  EXPECT_EQ(read.step, 7);
  ASSERT_EQ(read.files.size(), 3u);
  EXPECT_EQ(read.files[0].name, "a.bin");
  EXPECT_EQ(read.files[0].digest, manifest_.files[0].digest);
  EXPECT_EQ(verify(), "");
}

TEST_F(ManifestTest, OtherChunkSizesAreRead) {
  Manifest small;
  for (const char* name : {"a.bin", "b.json"}) small.files.push_back({name, digest_of_file(file(name), 65536)});
  write_manifest(folder_.path(), small);
  EXPECT_EQ(verify(), "");
  EXPECT_EQ(read_manifest(folder_.path()).files[0].digest, small.files[0].digest);
  small.files[1].digest = digest_of_file(file("b.json"));
  EXPECT_THROW(write_manifest(folder_.path(), small), Error);  // all files must use one size
  std::string text = read_file(file(kManifestName));
  for (const char* bad : {"65537", "0", "-65536", "2147483648"}) {
    std::string changed = text;
    changed.replace(changed.find("65536"), 5, bad);
    write_file_atomically(file(kManifestName), changed);
    EXPECT_TRUE(contains(verify(), "it must be a power of two from 64 KiB to 1 GiB")) << verify();
  }
}

// A manifest in the older form, with chunks of 16 MiB.
TEST_F(ManifestTest, ChunksOf16MiBAreRead) {
  write_file_atomically(file("b.json"), "{}");
  write_file_atomically(file(kManifestName), R"({
  "format": "tessera-manifest-1",
  "step": 3,
  "chunk_bytes": 16777216,
  "files": [
    {
      "name": "b.json",
      "size": 2,
      "crc32c": [
        "297bd0aa"
      ]
    }
  ],
  "self_crc32c": "41cc14d5"
}
)");
  EXPECT_EQ(verify(), "");
}

TEST_F(ManifestTest, SizeAndPresenceAreChecked) {
  write_file_atomically(file("b.json"), "{} ");
  EXPECT_TRUE(contains(verify(), "b.json: has 3 bytes, but manifest.json lists 2")) << verify();
  remove_tree(file("b.json"));
  EXPECT_TRUE(contains(verify(), "b.json: listed in manifest.json but not readable")) << verify();
  remove_tree(file("manifest.json"));
  EXPECT_TRUE(contains(verify(), "it has no manifest.json")) << verify();
}

// A flipped bit in the manifest is found by the JSON parser, by a rule, by its own checksum, or because the text
// differs from the output of write_manifest.
TEST_F(ManifestTest, AFlippedBitInAnyByteOfTheManifestIsFound) {
  const std::string good = read_file(file(kManifestName));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    std::ofstream(file(kManifestName), std::ios::binary) << bad;
    EXPECT_FALSE(complaint([&] { read_manifest(folder_.path()); }).empty())
        << "at " << i << ": " << bad.substr(i > 20 ? i - 20 : 0, 40);
  }
}

TEST_F(ManifestTest, NamesMayNotLeaveTheFolder) {
  for (const char* name : {"../x", "/etc/passwd", "a/b", "..", ".", ""}) {
    EXPECT_FALSE(is_plain_file_name(name)) << name;
    EXPECT_THROW(write_manifest(folder_.path(), {1, {{name, {}}}}), Error) << name;
  }
  EXPECT_TRUE(is_plain_file_name("model.safetensors"));
  std::string text = read_file(file(kManifestName));
  text.replace(text.find("b.json"), 6, "../b.j");
  write_file_atomically(file(kManifestName), text);
  EXPECT_TRUE(contains(verify(), "'../b.j' is not the plain name")) << verify();
}

}  // namespace
}  // namespace tessera::format
