#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/format/mlflow.h>

#include <tests/error_of.h>
#include <tests/own_folder.h>

#include <limits>

namespace tessera::format {
namespace {

constexpr double now = 1700000000.25;
using Points = std::vector<std::pair<std::string, double>>;

std::string text_at(const MlflowRun& run, const std::string& name) { return read_file(path_join(run.folder(), name)); }
Value meta_at(const std::string& folder) { return read_yaml(path_join(folder, "meta.yaml")); }

// The layout, read back by MLflow 3.17's own Python interface in tests/scripts/trackers.sh.
TEST(Mlflow, ARunAsMlflowLaysItOut) {
  const TemporaryFolder folder;
  const std::string store = path_join(folder.path(), "ml runs");
  std::string place;
  {
    MlflowRun run(store, "Default", "0123456789abcdef0123456789abcdef", "it's: \"a\"", now);
    place = run.folder();
    EXPECT_EQ(place, path_join(store, "0/0123456789abcdef0123456789abcdef"));
    run.points(now, 3, Points{{"loss", 1.5}, {"eval/loss(2)", std::numeric_limits<double>::quiet_NaN()}});
    run.points(now + 1, 4, Points{{"loss", 3e-4}});
    EXPECT_TRUE(run.parameter("learning_rate", "1e-3"));
    EXPECT_TRUE(run.parameter("learning_rate", "2"));  // a parameter keeps its value
    EXPECT_FALSE(run.parameter("long", std::string(6001, 'x')));
    run.tag("release", "RC1");
    EXPECT_EQ(meta_at(place).at("status").as_int(), 1) << "it runs";
    run.end(now + 2, MlflowRun::Status::finished);
    EXPECT_EQ(text_at(run, "metrics/loss"), "1700000000250 1.5 3\n1700000001250 3e-04 4\n");
    EXPECT_EQ(text_at(run, "metrics/eval/loss_2_"), "1700000000250 nan 3\n");
    EXPECT_EQ(text_at(run, "params/learning_rate"), "1e-3");
    EXPECT_FALSE(path_exists(path_join(place, "params/long")));
    EXPECT_EQ(text_at(run, "tags/release"), "RC1");
    EXPECT_EQ(text_at(run, "tags/mlflow.runName"), "it's: \"a\"");
  }
  const Value meta = meta_at(place);
  EXPECT_EQ(meta.at("run_name").as_string(), "it's: \"a\"");
  EXPECT_EQ(meta.at("status").as_int(), 3);
  EXPECT_EQ(meta.at("start_time").as_int(), 1700000000250);
  EXPECT_EQ(meta.at("end_time").as_int(), 1700000002250);
  EXPECT_EQ(meta.at("experiment_id").as_string(), "0");
  EXPECT_TRUE(meta.at("artifact_uri").as_string().ends_with("/ml%20runs/0/0123456789abcdef0123456789abcdef/artifacts"));
  EXPECT_EQ(meta_at(path_join(store, "0")).at("name").as_string(), "Default");
}

TEST(Mlflow, ExperimentsAreFoundByName) {
  const TemporaryFolder folder;
  MlflowRun first(folder.path(), "my: exp", "a", "", now), second(folder.path(), "my: exp", "b", "", now);
  const std::string experiment = first.folder().substr(0, first.folder().find_last_of('/'));
  EXPECT_EQ(second.folder(), experiment + "/b");
  EXPECT_EQ(meta_at(experiment).at("name").as_string(), "my: exp");
  // One that has been deleted is not written to, and its number stays its own.
  const std::string id = experiment.substr(experiment.find_last_of('/') + 1);
  make_folders(path_join(folder.path(), ".trash"));
  ASSERT_EQ(::rename(experiment.c_str(), path_join(path_join(folder.path(), ".trash"), id).c_str()), 0);
  const MlflowRun third(folder.path(), "my: exp", "c", "", now);
  EXPECT_EQ(third.folder().find(experiment + "/"), std::string::npos) << third.folder();
}

TEST(Mlflow, AResumedRunForgetsWhatWillBeMeasuredAgain) {
  const TemporaryFolder folder;
  {
    MlflowRun run(folder.path(), "e", "r", "name", now);
    for (int step = 1; step <= 4; ++step) run.points(now + step, step, Points{{"loss", 5.0 - step}});
  }
  const std::string place = MlflowRun(folder.path(), "other", "r", "", now + 9).folder();
  EXPECT_EQ(meta_at(place).at("status").as_int(), 4) << "nobody has ended it";
  write_file_atomically(path_join(place, "metrics/loss"), read_file(path_join(place, "metrics/loss")) + "17000");
  MlflowRun again(folder.path(), "other", "r", "", now + 10);
  EXPECT_EQ(again.folder(), place) << "a run is found whatever its experiment";
  again.resume_after(2);
  again.points(now + 11, 3, Points{{"loss", 9}});
  EXPECT_EQ(text_at(again, "metrics/loss"), "1700000001250 4 1\n1700000002250 3 2\n1700000011250 9 3\n");
  EXPECT_EQ(meta_at(place).at("status").as_int(), 1);
  EXPECT_TRUE(meta_at(place).at("end_time").is_null());
  EXPECT_EQ(meta_at(place).at("start_time").as_int(), 1700000000250);
  EXPECT_EQ(meta_at(place).at("run_name").as_string(), "name");
}

TEST(Mlflow, NoNameLeavesItsFolder) {
  const TemporaryFolder folder;
  MlflowRun run(path_join(folder.path(), "s"), "e", "r", "", now);
  run.tag("../../../out", "x");
  run.points(now, 1, Points{{"/../a/./b", 1}, {"..", 2}});
  EXPECT_EQ(text_at(run, "tags/out"), "x");
  EXPECT_EQ(text_at(run, "metrics/a/b"), "1700000000250 1 1\n");
  EXPECT_EQ(text_at(run, "metrics/_"), "1700000000250 2 1\n");
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"s"});
}

TEST(Mlflow, StoresByUri) {
  EXPECT_EQ(mlflow_store_folder("/a/b"), "/a/b");
  EXPECT_EQ(mlflow_store_folder("mlruns"), absolute_path("mlruns"));
  EXPECT_EQ(mlflow_store_folder("file:/a%20b"), "/a b");
  EXPECT_EQ(mlflow_store_folder("file:///a%2fb/c"), "/a/b/c");
  EXPECT_EQ(mlflow_store_folder("file:rel"), absolute_path("rel"));
  const auto message = [](const std::string& uri) {
    return tessera::testing::error_of([&] { mlflow_store_folder(uri); });
  };
  for (const char* uri : {"http://tracker:5000", "sqlite:///mlflow.db", "file://host/x", "databricks", "s3://b/p"})
    EXPECT_NE(message(uri).find(uri), std::string::npos) << message(uri);
  EXPECT_EQ(message("https://user:word@tracker:5000").find("word"), std::string::npos) << "no password is told";
  EXPECT_NE(message("https://user:word@tracker:5000").find("tracker:5000"), std::string::npos);
}

TEST(Mlflow, IdsOfRuns) {
  for (const char* good : {"a", "0_-b", "4eb74a01c6dd49bc8bc3a7d019437d7a"})
    EXPECT_TRUE(is_mlflow_run_id(good)) << good;
  for (const char* bad : {"", "-a", "a/b", "..", "a b"}) EXPECT_FALSE(is_mlflow_run_id(bad)) << bad;
  const TemporaryFolder folder;
  EXPECT_THROW(MlflowRun(folder.path(), "e", "../x", "", now), InputError);
  {
    MlflowRun run(folder.path(), "e", "gone", "", now);
  }
  const std::string meta = path_join(MlflowRun(folder.path(), "e", "gone", "", now).folder(), "meta.yaml");
  std::string text = read_file(meta);
  text.replace(text.find("active"), 6, "deleted");
  write_file_atomically(meta, text);
  EXPECT_THROW(MlflowRun(folder.path(), "e", "gone", "", now), InputError);
}

}  // namespace
}  // namespace tessera::format
