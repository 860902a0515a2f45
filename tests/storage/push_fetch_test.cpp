/// \file
/// Sends checkpoints to a store and fetches them, with faults of the store, the network and the disk.

#include "fake_store.h"

#include <fstream>

#include <tessera/storage/fetch.h>
#include <tests/error_of.h>

namespace tessera::testing {
namespace {

using storage::ObjectStore;
using storage::StorageError;

constexpr std::uint64_t part = std::uint64_t{128} << 10;
constexpr std::size_t five_parts = 600'000;

class PushFetch : public StoreTest {
 protected:
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }
  const ObjectUrl url = parse_object_url("s3://bucket/runs/checkpoint-7");
  storage::TransferOptions options(int connections = 3) const {
    storage::TransferOptions options;
    options.connections = connections;
    options.part_bytes = part;
    return options;
  }
  storage::PushReport push(const FakeStore& fake, int connections = 3) const {
    const ObjectStore store(fake.access());
    return storage::push_checkpoint(store, storage::OpenCheckpoint(at("checkpoint-7")), url, options(connections));
  }
  storage::FetchReport fetch(const FakeStore& fake, const std::string& name = "back") const {
    const ObjectStore store(fake.access());
    return storage::fetch_checkpoint(store, url, at(name), options());
  }
  void expect_back(const FakeStore& fake) const {
    remove_tree(at("back"));
    fetch(fake);
    EXPECT_TRUE(same_folders(at("checkpoint-7"), at("back")));
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(PushFetch, ThereAndBack) {
  for (const bool checksums : {true, false}) {
    const FakeStore fake(checksums ? std::vector<std::string>() : std::vector<std::string>{"--no_checksums"});
    write_checkpoint(at("checkpoint-7"), five_parts, 7);
    const auto report = push(fake);
    EXPECT_EQ(report.sent, report.bytes);
    EXPECT_EQ(fake.requests("PUT /bucket/runs/checkpoint-7/model.safetensors?partNumber=").size(), 5u);
    EXPECT_EQ(fake.requests("PUT").back(), "PUT /bucket/runs/checkpoint-7/manifest.json 200");
    expect_back(fake);
    EXPECT_FALSE(path_exists(at("back.fetching")));
    EXPECT_FALSE(path_exists(at("back.fetching.lock")));
    // The second time nothing is sent and nothing is fetched.
    fake.control("clear");
    EXPECT_EQ(push(fake).sent, 0u);
    EXPECT_TRUE(fake.requests("PUT").empty());
    EXPECT_EQ(fetch(fake).fetched, 0u);
    remove_tree(at("back"));
  }
}

TEST_F(PushFetch, FaultsThatPass) {
  // Each fault hits requests of its own kind, and the result is the same.
  for (const char* fault :
       {"503 * model 3", "503 * * 2", "drop PUT model 3", "drop * * 3", "flip PUT partNumber 2", "lie PUT partNumber 1",
        "etag PUT partNumber 2", "error200 POST uploadId 2", "flip PUT config 1"}) {
    const FakeStore fake;
    write_checkpoint(at("checkpoint-7"), five_parts, 7);
    fake.control(fault);
    const std::string error = error_of<StorageError>([&] { push(fake); });
    if (!error.empty()) {  // "lie": found by reading back, although the store confirmed
      EXPECT_TRUE(std::string(fault).starts_with("lie")) << fault << ": " << error;
      EXPECT_TRUE(error.find("reading it back") != std::string::npos) << error;
      EXPECT_TRUE(fake.requests("PUT /bucket/runs/checkpoint-7/manifest.json").empty())
          << "a damaged upload counts as a checkpoint";
      push(fake);
    }
    expect_back(fake);
  }
  for (const char* fault :
       {"503 GET model 3", "drop GET model 3", "cut GET model 3", "short GET model 3", "flip GET model 2",
        "etag GET config 1", "long GET model 3", "other_range GET model 2", "503 HEAD * 2", "cut GET manifest 2"}) {
    const FakeStore fake;
    write_checkpoint(at("checkpoint-7"), five_parts, 7);
    push(fake);
    fake.control(fault);
    expect_back(fake);
  }
}

TEST_F(PushFetch, ALieAboutASmallObjectIsFoundByReadingItBack) {
  const FakeStore fake;
  write_checkpoint(at("checkpoint-7"), 1000, 7);
  fake.control("lie PUT config 1");
  const std::string error = error_of<StorageError>([&] { push(fake); });
  EXPECT_TRUE(error.find("config.json: reading it back gives different bytes than were sent") != std::string::npos)
      << error;
  EXPECT_TRUE(fake.requests("PUT /bucket/runs/checkpoint-7/manifest.json").empty());
}

TEST_F(PushFetch, AnUploadThatStoppedGoesOn) {
  for (const bool checksums : {true, false}) {
    const FakeStore fake(checksums ? std::vector<std::string>() : std::vector<std::string>{"--no_checksums"});
    write_checkpoint(at("checkpoint-7"), five_parts, 7);
    fake.control("403 PUT partNumber=4 1");  // the process stops here: one connection sends parts in order
    EXPECT_FALSE(error_of<StorageError>([&] { push(fake, 1); }).empty());
    const ObjectStore store(fake.access());
    EXPECT_TRUE(storage::checkpoints_at(store, parse_object_url("s3://bucket/runs")).empty())
        << "an unfinished upload is not an object";
    fake.control("clear");
    const auto report = push(fake);
    EXPECT_EQ(fake.requests("PUT /bucket/runs/checkpoint-7/model.safetensors?partNumber=").size(), 2u) << "4 and 5";
    EXPECT_TRUE(fake.requests("POST /bucket/runs/checkpoint-7/model.safetensors?uploads").empty());
    EXPECT_EQ(report.bytes - report.sent, 3 * part);
    expect_back(fake);
  }
}

TEST_F(PushFetch, PartsOfAnotherModelAreSentAgain) {
  const FakeStore fake;
  write_checkpoint(at("checkpoint-7"), five_parts, 7, 1);
  fake.control("403 PUT partNumber=4 1");
  EXPECT_FALSE(error_of<StorageError>([&] { push(fake, 1); }).empty());
  write_checkpoint(at("checkpoint-7"), five_parts, 7, 2);  // trained again
  push(fake);
  expect_back(fake);
}

TEST_F(PushFetch, AnotherCheckpointOfTheSameNameLosesItsManifestFirst) {
  const FakeStore fake;
  write_checkpoint(at("checkpoint-7"), 1000, 7, 1);
  push(fake);
  write_checkpoint(at("checkpoint-7"), 1000, 7, 2);
  fake.control("403 PUT model 1");
  EXPECT_FALSE(error_of<StorageError>([&] { push(fake); }).empty());
  const ObjectStore store(fake.access());
  const auto list = storage::checkpoints_at(store, parse_object_url("s3://bucket/runs"));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_FALSE(list[0].whole);
  EXPECT_NE(error_of([&] { fetch(fake); }), "");
  push(fake);
  expect_back(fake);
}

TEST_F(PushFetch, AFetchThatStoppedGoesOn) {
  const FakeStore fake;
  write_checkpoint(at("checkpoint-7"), five_parts, 7);
  push(fake);
  fake.control("403 GET model 1");
  EXPECT_FALSE(error_of<StorageError>([&] { fetch(fake); }).empty());
  EXPECT_FALSE(path_exists(at("back"))) << "the folder is complete or absent";
  // The partial folder has correct parts, a wrong one, and an unknown file.
  std::string bytes = read_file(at("checkpoint-7/model.safetensors"));
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  write_file_atomically(at("back.fetching/model.safetensors"), bytes.substr(0, 3 * part));
  write_file_atomically(at("back.fetching/pytorch_model.bin"), "evil");
  fake.control("clear");
  fetch(fake);
  EXPECT_EQ(fake.requests("GET /bucket/runs/checkpoint-7/model.safetensors").size(), 3u) << "1, 4 and 5 of 5";
  EXPECT_TRUE(same_folders(at("checkpoint-7"), at("back")));
}

TEST_F(PushFetch, ADamagedObjectIsNamed) {
  const FakeStore fake;
  write_checkpoint(at("checkpoint-7"), five_parts, 7);
  push(fake);
  fake.control("damage runs/checkpoint-7/model.safetensors 200000");
  const std::string error = error_of<StorageError>([&] { fetch(fake); });
  EXPECT_TRUE(error.find("model.safetensors: bytes 196608 to 262144 are damaged") != std::string::npos) << error;
  EXPECT_FALSE(path_exists(at("back")));
  const ObjectStore store(fake.access());
  const auto verdict = storage::verify_checkpoint(store, url, options());
  ASSERT_EQ(verdict.damages.size(), 1u);
  EXPECT_EQ(verdict.damages[0], "model.safetensors: bytes 196608 to 262144 are damaged");
  fake.control("erase runs/checkpoint-7/config.json");
  EXPECT_EQ(storage::verify_checkpoint(store, url, options()).damages,
            (std::vector<std::string>{"config.json is missing"}));
}

TEST_F(PushFetch, DamageOnThisDiskIsNotSent) {
  const FakeStore fake;
  write_checkpoint(at("checkpoint-7"), five_parts, 7);
  const std::string path = at("checkpoint-7/model.safetensors");
  std::string bytes = read_file(path);
  bytes[140'000] = static_cast<char>(bytes[140'000] ^ 1);
  std::ofstream(path) << bytes;
  const std::string error = error_of([&] { push(fake); });
  EXPECT_TRUE(error.find("model.safetensors: bytes 131072 to 262144 are damaged") != std::string::npos) << error;
  EXPECT_TRUE(fake.requests("PUT /bucket/runs/checkpoint-7/manifest.json").empty());
}

TEST_F(PushFetch, AFolderThatIsSomethingElseIsLeftAlone) {
  const FakeStore fake;
  write_checkpoint(at("checkpoint-7"), 1000, 7);
  push(fake);
  make_folders(at("back"));
  write_file_atomically(at("back/mine.txt"), "mine");
  EXPECT_TRUE(error_of([&] { fetch(fake); }).find("already exists and is not the checkpoint") != std::string::npos);
  EXPECT_EQ(list_folder(at("back")), (std::vector<std::string>{"mine.txt"}));
}

TEST_F(PushFetch, SeveralProcessesFetchOnce) {
  const FakeStore fake;
  write_checkpoint(at("checkpoint-7"), five_parts, 7);
  push(fake);
  fake.control("clear");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { fetch(fake); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake.requests("GET /bucket/runs/checkpoint-7/model.safetensors").size(), 5u);
  EXPECT_TRUE(same_folders(at("checkpoint-7"), at("back")));
}

TEST_F(PushFetch, TheNewestThatIsWhole) {
  const FakeStore fake;
  const ObjectStore store(fake.access());
  const ObjectUrl runs = parse_object_url("s3://bucket/runs/");
  EXPECT_TRUE(error_of([&] { storage::newest_at(store, runs); }).find("contains no complete checkpoint") !=
              std::string::npos);
  for (const int step : {9, 10, 11}) {
    write_checkpoint(at("c"), 1000, step);
    const ObjectUrl to = runs.below(concat("checkpoint-", step));
    storage::push_checkpoint(store, storage::OpenCheckpoint(at("c")), to, options());
  }
  fake.control("erase runs/checkpoint-11/manifest.json");
  fake.control("put runs/checkpoint-x/manifest.json x");
  EXPECT_EQ(storage::newest_at(store, runs).url.key, "runs/checkpoint-10");
  EXPECT_EQ(storage::newest_at(store, runs.below("checkpoint-9")).url.key, "runs/checkpoint-9");
  const auto list = storage::checkpoints_at(store, runs);
  ASSERT_EQ(list.size(), 3u) << "pages of three keys";
  EXPECT_EQ(list[2].step, 11);
  EXPECT_FALSE(list[2].whole);
  EXPECT_TRUE(list[1].whole);
}

}  // namespace
}  // namespace tessera::testing
