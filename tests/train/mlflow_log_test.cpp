#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/train/reporting/mlflow_log.h>

#include <tests/error_of.h>

#include <map>

namespace tessera::train {
namespace {

using Variables = std::map<std::string, std::string>;

MlflowSettings read(const Variables& variables) {
  return read_mlflow_settings([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(MlflowLog, VariablesOfTransformersCallback) {
  const MlflowSettings none = read({});
  EXPECT_EQ(none.store, "");
  EXPECT_EQ(none.experiment, "Default");
  EXPECT_EQ(none.run_id, "");
  const MlflowSettings all = read({{"MLFLOW_TRACKING_URI", "file:/srv/mlruns"},
                                   {"MLFLOW_EXPERIMENT_NAME", "mine"},
                                   {"MLFLOW_RUN_ID", "abc"},
                                   {"MLFLOW_TAGS", R"({"release": "RC1"})"},
                                   {"MLFLOW_NESTED_RUN", "TRUE"},
                                   {"HF_MLFLOW_LOG_ARTIFACTS", "0"}});
  EXPECT_EQ(all.store, "/srv/mlruns");
  EXPECT_EQ(all.experiment, "mine");
  EXPECT_EQ(all.run_id, "abc");
  EXPECT_EQ(all.tags.at("release").as_string(), "RC1");
  EXPECT_EQ(all.ignored, std::vector<std::string>{"MLFLOW_NESTED_RUN"});
  const auto message = [](const Variables& variables) { return tessera::testing::error_of([&] { read(variables); }); };
  EXPECT_NE(message({{"MLFLOW_TRACKING_URI", "http://h:5000"}}).find("http://h:5000"), std::string::npos);
  EXPECT_NE(message({{"MLFLOW_RUN_ID", "a/b"}}).find("a/b"), std::string::npos);
  EXPECT_NE(message({{"MLFLOW_TAGS", "[1]"}}).find("MLFLOW_TAGS"), std::string::npos);
}

TEST(MlflowLog, TheRunOfTheOutputFolderGoesOn) {
  const TemporaryFolder folder;
  const Value configuration = Value::make_object(
      {{"optimization", Value::make_object({{"learning_rate", Value::make_object({{"value", Value::of(0.5)}})},
                                            {"optim_args", Value::make_object({{"value", Value::of("")}})},
                                            {"hidden_size", Value::make_object({{"value", Value::of(7)}})}})}});
  const Value model = Value::make_object({{"hidden_size", Value::of(32)}, {"n_layer", Value::of(2)}});
  const auto open = [&](const MlflowSettings& settings, std::int64_t step) {
    return open_mlflow_run(settings, folder.path(), "name", step, configuration, model, 100);
  };
  auto run = open({}, -1);
  const std::string id = run->id(), place = run->folder();
  EXPECT_EQ(id.size(), 32u);
  EXPECT_EQ(place, path_join(folder.path(), "mlruns/0/" + id));
  EXPECT_EQ(read_file(place + "/params/learning_rate"), "0.5");
  EXPECT_EQ(read_file(place + "/params/n_layer"), "2");
  EXPECT_EQ(read_file(place + "/params/hidden_size"), "7") << "a setting beats the model's";
  EXPECT_FALSE(path_exists(place + "/params/optim_args")) << "what is not set is no parameter";
  for (int step = 1; step <= 3; ++step)
    run->points(100 + step, step, std::vector<std::pair<std::string, double>>{{"loss", 1}});
  run.reset();
  run = open({}, 1);
  EXPECT_EQ(run->id(), id);
  EXPECT_EQ(read_file(place + "/metrics/loss"), "101000 1 1\n");
  run.reset();
  MlflowSettings named;
  named.run_id = "mine";
  EXPECT_EQ(open(named, 1)->id(), "mine");
  EXPECT_EQ(open({}, 1)->id(), "mine");
}

}  // namespace
}  // namespace tessera::train
