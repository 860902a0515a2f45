// tessera train with s3:// for its data and for the checkpoint it resumes from.

#include "program.h"

#include <tests/storage/fake_store.h>

namespace tessera::testing {
namespace {

class TrainFromStore : public ToolTest {
 protected:
  TrainFromStore() {
    if (storage::has_http_plugin()) fake_ = std::make_unique<FakeStore>();
  }
  void SetUp() override {
    if (!fake_) GTEST_SKIP() << "libtessera_s3.so was not built: make deps";
  }
  launch::Captured run(const Strings& arguments) const {
    launch::Environment environment = fake_->environment(2);
    environment.emplace_back("XDG_CACHE_HOME", at("cache"));
    return tessera(arguments, environment);
  }
  void put(const std::string& url, const std::string& bytes) const {
    const auto text = std::as_bytes(std::span(bytes));
    storage::ObjectStore(fake_->access()).put(parse_object_url(url), text, format::crc32c(text));
  }
  Strings with_data(Strings arguments, const std::string& data) const {
    *(std::find(arguments.begin(), arguments.end(), "--train_file") + 1) = data;
    return arguments;
  }

  std::unique_ptr<FakeStore> fake_;
};

TEST_F(TrainFromStore, GoesOnFromTheNewestCheckpointAndReadsItsData) {
  const auto whole = run(training("whole", batch(6, 2, 6) + Strings{"--save_steps", "2"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  for (const char* name : {"checkpoint-2", "checkpoint-4"}) {
    const auto pushed = run({"checkpoint", "push", path_join(at("whole"), name), concat("s3://bucket/run/", name)});
    ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
  }
  put("s3://bucket/data/text.txt", read_file(at("text.txt")));
  fake_->control("503 GET model 1");
  const Strings more = batch(3, 2, 6) + Strings{"--num_processes", "2", "--resume_from_checkpoint", "s3://bucket/run"};
  const Strings rest = with_data(training("rest", more), "s3://bucket/data/text.txt");
  const auto resumed = run(rest);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err, "fetched s3://bucket/run/checkpoint-4 into")) << resumed.err;
  const auto expected = curve("whole"), found = curve("rest");
  ASSERT_EQ(found.size(), 2u);
  for (const int step : {5, 6}) EXPECT_NEAR(found.at(step), expected.at(step), 1e-4) << step;
  // Fetched once, whatever the number of processes.
  EXPECT_EQ(fake_->requests("GET /bucket/data/text.txt 206").size(), 1u);
}

TEST_F(TrainFromStore, MistakesEndBeforeAnythingIsWritten) {
  struct Mistake {
    Strings more;
    std::string data, said;
  };
  const std::string text = at("text.txt");
  for (const Mistake& mistake :
       {Mistake{{"--resume_from_checkpoint", "s3://bucket/none"}, text, "contains no complete checkpoint"},
        Mistake{{"--resume_from_checkpoint", "s3://other/run"}, text, "the bucket does not exist"},
        Mistake{{"--resume_from_checkpoint", "s3://B"}, text, "is not a bucket name"},
        Mistake{{}, "s3://bucket/none.txt", "no such object"},
        Mistake{{}, "s3://bucket/a//b.txt", "between two '/'"}}) {
    const auto refused = run(with_data(training("out", batch(6, 2, 2) + mistake.more), mistake.data));
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_TRUE(contains(refused.err, mistake.said)) << refused.err;
    EXPECT_FALSE(path_exists(at("out"))) << mistake.said;
  }
}

TEST_F(TrainFromStore, ADamagedCheckpointIsNotGoneOnFrom) {
  const auto whole = run(training("whole", batch(6, 2, 4) + Strings{"--save_steps", "2"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(run({"checkpoint", "push", at("whole/checkpoint-2"), "s3://bucket/run/checkpoint-2"}).exit_code, 0);
  fake_->control("damage run/checkpoint-2/model.safetensors 5000");
  const auto resumed = run(training("rest", batch(6, 2, 4) + Strings{"--resume_from_checkpoint", "s3://bucket/run"}));
  EXPECT_EQ(resumed.exit_code, 1) << resumed.err;
  EXPECT_TRUE(contains(resumed.err, "is damaged in the store: model.safetensors")) << resumed.err;
  EXPECT_FALSE(path_exists(at("rest/checkpoint-2")));
}

}  // namespace
}  // namespace tessera::testing
