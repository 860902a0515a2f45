// The table of settings: names, defaults compared with Hugging Face's, and the rule of every field.

#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/text.h>

#include <cmath>
#include <map>
#include <set>

namespace tessera::config {
namespace {

std::string wrong(const std::string& name, const std::string& text) {
  RunConfig config;
  const auto problem = find_field(name)->set(config, text);
  return problem ? *problem : "";
}

TEST(Fields, NamesAreUniqueWellFormedAndExplained) {
  std::set<std::string_view> names;
  for (const Field& field : fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(field.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string_view::npos)
        << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
    EXPECT_EQ(find_field(field.name), &field);
  }
  for (const auto& [alias, ours] : aliases()) {
    EXPECT_EQ(find_field(alias), nullptr) << alias;
    EXPECT_NE(find_field(ours), nullptr) << alias;
  }
  EXPECT_EQ(find_field("learning-rate"), nullptr);
}

TEST(Fields, HangsMayBeLookedForNever) {
  EXPECT_EQ(wrong("hang_timeout", "-1"), "");
  EXPECT_EQ(wrong("hang_timeout", "0"), "");
  EXPECT_NE(wrong("hang_timeout", "-2"), "");
}

TEST(Fields, EveryPlaceInRunConfigHasOneField) {
  RunConfig config;
  std::set<const void*> places;
  for (const Field& field : fields())
    std::visit(
        [&](auto place) {
          if constexpr (std::is_same_v<decltype(place(config)), WordSlot>)
            EXPECT_TRUE(places.insert(place(config).value).second) << field.name;
          else
            EXPECT_TRUE(places.insert(&place(config)).second) << field.name;
        },
        field.access);
}

// Defaults of transformers.TrainingArguments() and run_clm.py. Only the name of `optim` differs.
TEST(Fields, DefaultsAreHuggingFaces) {
  const std::map<std::string, std::string> expected = {{"learning_rate", "5e-05"},
                                                       {"weight_decay", "0.0"},
                                                       {"adam_beta1", "0.9"},
                                                       {"adam_beta2", "0.999"},
                                                       {"adam_epsilon", "1e-08"},
                                                       {"max_grad_norm", "1.0"},
                                                       {"num_train_epochs", "3.0"},
                                                       {"max_steps", "-1"},
                                                       {"lr_scheduler_type", "\"linear\""},
                                                       {"warmup_steps", "0"},
                                                       {"per_device_train_batch_size", "8"},
                                                       {"per_device_eval_batch_size", "8"},
                                                       {"gradient_accumulation_steps", "1"},
                                                       {"seed", "42"},
                                                       {"save_strategy", "\"steps\""},
                                                       {"save_steps", "500"},
                                                       {"eval_strategy", "\"no\""},
                                                       {"ddp_timeout", "1800.0"},
                                                       {"ddp_bucket_cap_mb", "25.0"},
                                                       {"train_sampling_strategy", "\"random\""},
                                                       {"validation_split_percentage", "5.0"},
                                                       {"ddp_broadcast_buffers", "true"},
                                                       {"warmup_ratio", "0.0"},
                                                       {"optim", "\"adamw\""},
                                                       {"logging_steps", "500"}};
  for (const auto& [name, text] : expected) EXPECT_EQ(dump_json(find_field(name)->get(RunConfig{})), text) << name;
}

TEST(Fields, DigitsInGroupsAsInPython) {
  for (const auto& [text, plain] :
       {std::pair("1_000", "1000"), std::pair("2 2 1_0_0", "2 2 100"), std::pair("_1", "_1"), std::pair("1_", "1_"),
        std::pair("1__0", "1__0"), std::pair("a_b", "a_b")})
    EXPECT_EQ(ungrouped(text), plain);
}

TEST(Fields, RulesNameTheNumbers) {
  EXPECT_EQ(wrong("adam_beta1", "1"), "is 1; it must be at least 0 and less than 1");
  EXPECT_EQ(wrong("adam_beta2", "-0.1"), "is -0.1; it must be at least 0 and less than 1");
  EXPECT_EQ(wrong("num_train_epochs", "0"), "is 0; it must be more than 0");
  EXPECT_EQ(wrong("validation_split_percentage", "100"), "is 100; it must be at least 0 and less than 100");
  EXPECT_EQ(wrong("warmup_ratio", "1.5"), "is 1.5; it must be at least 0 and at most 1");
  EXPECT_EQ(wrong("main_process_port", "65536"), "is 65536; it must be at least 0 and at most 65535");
  EXPECT_EQ(wrong("num_processes", "0"), "is 0; it must be at least 1 and at most 4096");
  EXPECT_EQ(wrong("per_device_train_batch_size", "0"), "is 0; it must be at least 1");
  EXPECT_EQ(wrong("block_size", "1"), "is 1; it must be at least 2 and at most 16777216");
  EXPECT_EQ(wrong("max_steps", "12.5"), "is '12.5'; it must be an integer");
  EXPECT_EQ(wrong("max_steps", "99999999999999999999"), "is '99999999999999999999'; it must be an integer");
  EXPECT_EQ(wrong("learning_rate", "fast"), "is 'fast'; it must be a number");
  EXPECT_EQ(wrong("learning_rate", "nan"), "is 'nan'; it must be a finite number");
  EXPECT_EQ(wrong("learning_rate", "inf"), "is 'inf'; it must be a finite number");
  EXPECT_EQ(wrong("lr_scheduler_type", "cosin"),
            "is 'cosin'; it must be one of linear, cosine, constant, constant_with_warmup, polynomial, inverse_sqrt, "
            "cosine_with_restarts, cosine_with_min_lr, cosine_warmup_with_min_lr, warmup_stable_decay, "
            "reduce_lr_on_plateau, warmup_lr, "
            "warmup_decay_lr, warmup_cosine_lr, one_cycle, lr_range_test (did you mean cosine?)");
  EXPECT_EQ(wrong("disable_tqdm", "maybe"), "is 'maybe'; it must be true or false");
}

TEST(Fields, AWrongValueLeavesTheConfigurationAlone) {
  for (const Field& field : fields()) {
    RunConfig config;
    if (field.set(config, "\x01 no such value"))
      EXPECT_EQ(dump_json(field.get(config)), dump_json(field.get(RunConfig{}))) << field.name;
    else
      EXPECT_TRUE(field.get(config).is_string()) << field.name;
  }
}

TEST(Fields, SynonymsOfOtherSystems) {
  for (const char* word : {"adamw", "adamw_torch", "adamw_torch_fused"}) {
    RunConfig config;
    EXPECT_EQ(find_field("optim")->set(config, word), std::nullopt);
    EXPECT_EQ(config.optimization.optim, OptimizerKind::adamw);
  }
  const auto strategy = [](const char* word) {
    RunConfig config;
    EXPECT_EQ(find_field("strategy")->set(config, word), std::nullopt) << word;
    return config.sharding.strategy;
  };
  EXPECT_EQ(strategy("FULL_SHARD"), Strategy::full_shard);  // case does not matter
  EXPECT_EQ(strategy("1"), Strategy::full_shard);
  EXPECT_EQ(strategy("NO_SHARD"), Strategy::ddp);
  EXPECT_EQ(strategy("3"), Strategy::ddp);
  EXPECT_EQ(strategy("4"), Strategy::hybrid_shard);
}

TEST(Fields, Booleans) {
  for (const char* yes : {"true", "True", "yes", "t", "y", "1", "on"}) EXPECT_EQ(parse_bool(yes), true) << yes;
  for (const char* no : {"false", "False", "no", "f", "n", "0", "off"}) EXPECT_EQ(parse_bool(no), false) << no;
  EXPECT_EQ(parse_bool("2"), std::nullopt);
  EXPECT_EQ(parse_bool(""), std::nullopt);
}

RC_GTEST_PROP(Fields, RealsAndIntegersSurviveBeingWritten, (double real, std::int64_t integer)) {
  RunConfig config;
  const double positive = std::abs(real);
  RC_ASSERT(!find_field("weight_decay")->set(config, format_real(positive)));
  RC_ASSERT(config.optimization.weight_decay == positive);
  const std::int64_t seed = integer & INT64_MAX;
  RC_ASSERT(!find_field("seed")->set(config, std::to_string(seed)));
  RC_ASSERT(config.optimization.seed == seed);
}

}  // namespace
}  // namespace tessera::config
