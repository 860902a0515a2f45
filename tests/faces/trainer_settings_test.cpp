// Every setting of `tessera train` is either followed by tessera::Trainer or named as ineffective when it is given.
#include <tests/paths.h>

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/faces/trainer_settings.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

namespace {

using namespace tessera;
using Names = std::vector<std::string>;

bool is_followed(std::string_view name) {
  const auto names = faces::trainer_settings();
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A configuration that sets only this setting, to a value other than the default.
config::Resolved with_other_value(const config::Field& field) {
  config::Resolved given;
  const std::string before = dump_json(field.get(given.values));
  Names values = {"true", "false", "1", "2", "3", "0.5", "0.25"};
  values.insert(values.begin(), field.rule.words.begin(), field.rule.words.end());
  values.emplace_back("text");
  for (const std::string& value : values) {
    if (field.set(given.values, value)) continue;  // the error, if any
    if (dump_json(field.get(given.values)) == before) continue;
    given.origins[std::string(field.name)] = config::Origin::flag(concat("--", field.name));
    return given;
  }
  ADD_FAILURE() << field.name << ": no value other than the default was found";
  return given;
}

bool is_refused(std::string_view name) {
  const auto refused = faces::refused_by_trainer();
  return std::find(refused.begin(), refused.end(), name) != refused.end();
}

TEST(TrainerSettings, each_is_followed_or_named) {
  for (const config::Field& field : config::fields()) {
    const config::Resolved given = with_other_value(field);
    const Names expected = is_followed(field.name) || is_refused(field.name) ? Names{} : Names{std::string(field.name)};
    EXPECT_EQ(faces::without_effect_on_trainer(given), expected)
        << field.name << " is a setting; is it one that tessera::Trainer follows (trainer_settings())?";
  }
}

TEST(TrainerSettings, names_are_those_of_the_table_each_once) {
  std::set<std::string_view> seen;
  for (const std::string_view name : faces::trainer_settings()) {
    EXPECT_NE(config::find_field(name), nullptr) << name;
    EXPECT_TRUE(seen.insert(name).second) << name << " twice";
  }
}

TEST(TrainerSettings, what_equals_its_default_or_was_derived_is_not_named) {
  config::Resolved given;
  given.origins["packing"] = config::Origin::flag("--packing");
  EXPECT_EQ(faces::without_effect_on_trainer(given), Names{}) << "as it is anyway";
  given.values.data.packing = true;
  EXPECT_EQ(faces::without_effect_on_trainer(given), Names{"packing"});
  given.origins["packing"] = config::Origin::derived("--other");
  EXPECT_EQ(faces::without_effect_on_trainer(given), Names{});
  given.values.data.train_sampling_strategy = SamplingStrategy::group_by_length;
  EXPECT_EQ(faces::without_effect_on_trainer(given), Names{"train_sampling_strategy group_by_length"});
}

TEST(TrainerSettings, what_is_refused_is_refused_by_name) {
  EXPECT_NO_THROW(faces::check_trainer_settings({}));
  for (const auto& [name, text] :
       {std::pair("tokens_per_batch", "64"), std::pair("batch_size_schedule", "8,8,100"),
        std::pair("balance_batches", "true"), std::pair("decoupled_lr", "0.1"), std::pair("decoupled_min_lr", "0.1"),
        std::pair("mm_projector_lr", "0.1"), std::pair("neftune_noise_alpha", "5"), std::pair("preference_loss", "dpo"),
        std::pair("gradient_noise_scale", "true"), std::pair("exit_duration_in_mins", "10"),
        std::pair("checkpoint_in_memory", "2"), std::pair("check_replicas_steps", "2"), std::pair("pp_size", "2"),
        std::pair("cp_size", "2"), std::pair("ep_size", "2"), std::pair("etp_size", "2")}) {
    ASSERT_TRUE(is_refused(name));
    RunConfig config;
    ASSERT_EQ(config::find_field(name)->set(config, text), std::nullopt);
    try {
      faces::check_trainer_settings(config);
      ADD_FAILURE() << name;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

/// The sources that tessera::Trainer uses, as one text, without the `skipped` names.
std::string sources(const Names& paths, const std::set<std::string>& skipped = {}) {
  std::string text;
  for (const std::string& path : paths) {
    const std::string at = tessera::testing::source_path(path);
    if (!is_directory(at)) {
      text += read_file(at);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(at))
      if ((entry.path().extension() == ".cpp" || entry.path().extension() == ".h") &&
          !skipped.contains(entry.path().filename().string()))
        text += read_file(entry.path().string());
  }
  return text;
}

bool reads(const std::string& text, std::string_view name) {
  return std::regex_search(text, std::regex(concat("(\\.|::)", name, "\\b")));
}

/// As far as the source text shows: the setting's member is read in code that the Trainer uses.
TEST(TrainerSettings, what_is_followed_is_read) {
  const std::string trainer = sources(
      {"tessera/faces", "tessera/train/core", "tessera/train/features/fp8.cpp", "tessera/train/loop/determinism.cpp",
       "tessera/train/loop/sharding.cpp", "tessera/config/hf/sharding.cpp",
       "tessera/config/resolve/validate_evaluations.cpp", "tessera/config/rules/named_parameters.cpp"});
  // Resolving the configuration turns these into other settings.
  const std::set<std::string_view> resolved = {"config",        "config_file",     "args_file",
                                               "compat",        "unknown",         "fsdp_config",
                                               "num_processes", "group_by_length", "reduce_bucket_size"};
  const std::string configuration = sources({"tessera/config"});
  for (const std::string_view name : faces::trainer_settings())
    EXPECT_TRUE(reads(resolved.contains(name) ? configuration : trainer, name)) << name << " is not read anywhere";
}

/// Settings that are reported as ineffective have no effect: no face reads them.
TEST(TrainerSettings, what_is_named_is_not_read) {
  // Groups for pipeline, context and expert parallelism are created only for programs that support them.
  const std::string trainer = sources({"tessera/faces/trainer.cpp", "tessera/faces/trainer_saves.cpp",
                                       "tessera/faces/training.cpp", "tessera/train/core"},
                                      {"run_groups.cpp"});
  // make_run_plan() reads these before it divides steps into epochs; they belong to the program.
  const std::set<std::string_view> of_the_program = {"streaming"};
  for (const config::Field& field : config::fields()) {
    if (!is_followed(field.name) && !is_refused(field.name) && !of_the_program.contains(field.name)) {
      EXPECT_FALSE(reads(trainer, field.name)) << field.name;
    }
  }
}

}  // namespace
