/// \file
/// --train_file s3://...: files are fetched once and verified.

#include "fake_store.h"

#include <tessera/storage/data_files.h>
#include <tests/error_of.h>

namespace tessera::testing {
namespace {

using storage::ObjectStore;
using storage::StorageError;

class DataFiles : public StoreTest {
 protected:
  std::string fetch(const std::string& list) const {
    const ObjectStore store(fake_.access());
    storage::TransferOptions options;
    options.part_bytes = 16;
    return storage::fetch_data_list(store, list, folder_.path() + "/objects", options);
  }
  const FakeStore fake_;
  TemporaryFolder folder_;
};

TEST_F(DataFiles, ObjectsFoldersAndPatterns) {
  fake_.control("put d/a.txt the-text-of-a-which-has-more-than-one-part");
  fake_.control("put d/b.txt of-b");
  fake_.control("put d/sub/c.txt of-c");
  fake_.control("put d/x.jsonl {}");
  fake_.control("put t/x.bin tokens");
  fake_.control("put t/x.idx index");
  const std::string one = fetch("s3://bucket/d/a.txt");
  EXPECT_EQ(read_file(one), "the-text-of-a-which-has-more-than-one-part");
  EXPECT_TRUE(one.ends_with("/a.txt")) << "the name determines the kind of file";
  const std::string list = fetch("0.5 s3://bucket/d/*.txt 0.25 'my file.txt' 0.25 s3://bucket/d");
  const auto words = split(list, ' ');
  ASSERT_EQ(words.size(), 7u) << list;
  EXPECT_EQ(words[0], "0.5");
  EXPECT_EQ(list_folder(words[1]), (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(words[3] + " " + words[4], "'my file.txt'");
  EXPECT_EQ(list_folder(words[6]), (std::vector<std::string>{"a.txt", "b.txt", "sub", "x.jsonl"}));
  EXPECT_EQ(read_file(words[6] + "/sub/c.txt"), "of-c");
  const std::string tokens = fetch("s3://bucket/t/x.bin");
  EXPECT_EQ(read_file(tokens.substr(0, tokens.size() - 4) + ".idx"), "index");
  EXPECT_EQ(error_of([&] { fetch("s3://bucket/none/"); }),
            "s3://bucket/none/: no such object, and nothing below this prefix");
}

TEST_F(DataFiles, IsFetchedOnceUntilItChanges) {
  fake_.control("put d/a.txt first");
  const std::string before = fetch("s3://bucket/d/a.txt");
  fake_.control("clear");
  EXPECT_EQ(fetch("s3://bucket/d/a.txt"), before);
  EXPECT_TRUE(fake_.requests("GET").empty());
  fake_.control("put d/a.txt second");
  const std::string after = fetch("s3://bucket/d/a.txt");
  EXPECT_NE(after, before);
  EXPECT_EQ(read_file(after), "second");
  EXPECT_EQ(read_file(before), "first") << "a run that reads it continues";
}

TEST_F(DataFiles, WrongBytesAreNotPublished) {
  fake_.control("put d/a.txt the-text-of-a-which-has-more-than-one-part");
  fake_.control("flip GET a.txt 1");
  const std::string error = error_of<StorageError>([&] { fetch("s3://bucket/d/a.txt"); });
  EXPECT_NE(error.find("s3://bucket/d/a.txt is damaged: the received data differs in MD5 (ETag)"), std::string::npos)
      << error;
  EXPECT_EQ(read_file(fetch("s3://bucket/d/a.txt")), "the-text-of-a-which-has-more-than-one-part");
}

TEST_F(DataFiles, AFetchThatStoppedGoesOn) {
  fake_.control("put d/a.txt of-a");
  fake_.control("put d/b.txt of-b");
  fake_.control("403 GET b.txt 1");
  EXPECT_THROW(fetch("s3://bucket/d"), StorageError);
  fake_.control("clear");
  EXPECT_EQ(read_file(fetch("s3://bucket/d") + "/b.txt"), "of-b");
  EXPECT_TRUE(fake_.requests("GET /bucket/d/a.txt").empty()) << "it was fetched before";
}

}  // namespace
}  // namespace tessera::testing
