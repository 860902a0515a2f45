/// \file
/// tessera checkpoint push, fetch, ls and verify on s3:// URLs, as a user runs them.

#include "fake_store.h"

#include <csignal>
#include <optional>

#include <tests/tool/program.h>

namespace tessera::testing {
namespace {

class ObjectCommands : public StoreTest {
 protected:
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }
  /// Runs a command and checks that its output never shows the credentials.
  launch::Captured checkpoint(const Strings& arguments, const launch::Environment& environment) const {
    launch::Captured run = tessera(Strings{"checkpoint"} + arguments, environment);
    EXPECT_EQ((run.out + run.err).find("hush"), std::string::npos) << run.out << run.err;
    return run;
  }
  launch::Captured checkpoint(const Strings& arguments) const { return checkpoint(arguments, fake_.environment(2)); }

  const std::string url_ = "s3://bucket/runs/checkpoint-7";
  const FakeStore fake_;

 private:
  TemporaryFolder folder_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(ObjectCommands, ThereAndBack) {
  write_checkpoint(at("checkpoint-7"), 5000, 7);
  auto run = checkpoint({"push", at("checkpoint-7"), url_});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(has(run.out, "pushed   s3://bucket/runs/checkpoint-7  step 7, 5.2 KiB")) << run.out;
  run = checkpoint({"ls", "s3://bucket/runs"});
  EXPECT_TRUE(has(run.out, "whole      s3://bucket/runs/checkpoint-7  4 objects")) << run.out << run.err;
  run = checkpoint({"ls", "s3://bucket/runs", "--json"});
  EXPECT_TRUE(has(run.out, "\"whole\"")) << run.out << run.err;
  run = checkpoint({"verify", url_});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(has(run.out, "whole    s3://bucket/runs/checkpoint-7  step 7, 3 files")) << run.out;
  run = checkpoint({"fetch", "s3://bucket/runs", at("back")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(same_folders(at("checkpoint-7"), at("back")));
}

TEST_F(ObjectCommands, WhatIsDamagedOrNotThereIsTold) {
  write_checkpoint(at("checkpoint-7"), 200'000, 7);
  EXPECT_EQ(checkpoint({"push", at("checkpoint-7"), url_}).exit_code, 0);
  fake_.control("damage runs/checkpoint-7/model.safetensors 100000");
  auto run = checkpoint({"verify", url_});
  EXPECT_EQ(run.exit_code, 1) << run.out;
  EXPECT_TRUE(has(run.out, "damaged  s3://bucket/runs/checkpoint-7")) << run.out;
  EXPECT_TRUE(has(run.out, "model.safetensors: bytes 65536 to 131072 are damaged")) << run.out;
  run = checkpoint({"fetch", url_, at("back")});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(has(run.err, "is damaged in the store: model.safetensors: bytes 65536 to 131072")) << run.err;
  EXPECT_FALSE(path_exists(at("back")));
  fake_.control("erase runs/checkpoint-7/manifest.json");
  run = checkpoint({"ls", "s3://bucket/runs"});
  EXPECT_TRUE(has(run.out, "unfinished s3://bucket/runs/checkpoint-7")) << run.out;
  for (const std::string& url : {url_, std::string("s3://bucket/runs")}) {
    run = checkpoint({"verify", url});
    EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
    EXPECT_TRUE(has(run.err, "no complete checkpoint found")) << run.err;
  }
}

TEST_F(ObjectCommands, WrongUseEndsWithTwo) {
  write_checkpoint(at("checkpoint-7"), 100, 7);
  for (const Strings& arguments :
       {Strings{"push", at("checkpoint-7")}, Strings{"push", at("none"), url_},
        Strings{"push", at("checkpoint-7"), "s3://x"}, Strings{"push", at("checkpoint-7"), url_, "--connections", "0"},
        Strings{"fetch", url_}, Strings{"ls"}, Strings{"fetch", "s3://bucket/none", at("back")},
        Strings{"ls", "s3://bucket/none"}, Strings{"verify", url_}}) {
    const auto run = checkpoint(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments.front() << ": " << run.out << run.err;
  }
  launch::Environment nobody = fake_.environment();
  for (auto& [name, value] : nobody)
    if (name == "AWS_ACCESS_KEY_ID" || name == "AWS_SECRET_ACCESS_KEY") value = std::nullopt;
  const auto run = checkpoint({"ls", url_}, nobody);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(has(run.err, "no credentials for s3:// found")) << run.err;
}

TEST_F(ObjectCommands, NoSecretIsEverSaid) {
  write_checkpoint(at("checkpoint-7"), 100, 7);
  launch::Environment wrong = fake_.environment(1);
  for (auto& [name, value] : wrong) {
    if (name == "AWS_SECRET_ACCESS_KEY") value = "hush-secret";
    if (name == "AWS_SESSION_TOKEN") value = "hush-token";
  }
  auto run = checkpoint({"push", at("checkpoint-7"), url_}, wrong);
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(has(run.err, "403")) << run.err;
  for (auto& [name, value] : wrong)
    if (name == "AWS_ENDPOINT_URL") value = "http://hush:hush@127.0.0.1";
  run = checkpoint({"push", at("checkpoint-7"), url_}, wrong);
  EXPECT_EQ(run.exit_code, 2) << run.err;
}

TEST_F(ObjectCommands, KilledInTheMiddleAndGoneOn) {
  constexpr std::size_t three_parts = std::size_t{40} << 20;
  const FakeStore fake({"--no_checksums"});  // plain Python takes long to checksum 40 MiB
  write_checkpoint(at("checkpoint-7"), three_parts, 7);
  fake.control("503 PUT partNumber=3 1000000");
  launch::ProcessOptions options;
  options.command = {program, "checkpoint", "push", at("checkpoint-7"), url_, "--connections", "1"};
  options.environment = fake.environment(100);
  {
    const launch::Process process(options);
    const Stopwatch watch;
    const std::string refused = "PUT /bucket/runs/checkpoint-7/model.safetensors?partNumber=3";
    while (fake.requests(refused).empty() && watch.seconds() < watch.limit(60)) ::usleep(20'000);
    ASSERT_FALSE(fake.requests(refused).empty());
    process.signal_group(SIGKILL);
  }
  auto run = checkpoint({"fetch", url_, at("back")}, fake.environment(1));
  EXPECT_EQ(run.exit_code, 2) << "a partial upload is not a checkpoint: " << run.out;
  fake.control("clear");
  run = checkpoint({"push", at("checkpoint-7"), url_}, fake.environment());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(has(run.out, "of which 32.0 MiB existed already")) << run.out;
  EXPECT_EQ(fake.requests("PUT /bucket/runs/checkpoint-7/model.safetensors?partNumber=").size(), 1u);
  run = checkpoint({"fetch", url_, at("back")}, fake.environment());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(same_folders(at("checkpoint-7"), at("back")));
}

}  // namespace
}  // namespace tessera::testing
