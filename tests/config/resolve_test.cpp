// The command-line front end: spellings, origins, derived values, and every possible mistake in a flag.

#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <tests/error_of.h>

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

Resolved read(const Words& arguments) { return resolve_flags(arguments, no_environment); }

std::string error_of(const Words& arguments) {
  return tessera::testing::error_of([&] { read(arguments); });
}

TEST(ResolveFlags, NothingGivenMeansDefaults) {
  const Resolved resolved = read({});
  for (const Field& field : fields()) EXPECT_EQ(resolved.origin(field.name).str(), "default") << field.name;
}

TEST(ResolveFlags, SpellingsOfOneFlag) {
  for (const Words& arguments : {Words{"--learning_rate", "1e-3"},
                                 {"--learning-rate", "1e-3"},
                                 {"--learning_rate=1e-3"},
                                 {"--learning-rate=1e-3"}}) {
    const Resolved resolved = read(arguments);
    EXPECT_EQ(resolved.values.optimization.learning_rate, 1e-3);
    EXPECT_EQ(resolved.origin("learning_rate").str(), arguments[0].substr(0, arguments[0].find('=')));
  }
}

TEST(ResolveFlags, Booleans) {
  EXPECT_TRUE(read({"--overwrite_output_dir"}).values.output.overwrite_output_dir);
  EXPECT_TRUE(read({"--overwrite-output-dir", "yes"}).values.output.overwrite_output_dir);
  EXPECT_FALSE(read({"--overwrite_output_dir=False"}).values.output.overwrite_output_dir);
  EXPECT_FALSE(read({"--no_ddp_broadcast_buffers"}).values.parallel.ddp_broadcast_buffers);
  EXPECT_FALSE(read({"--no-ddp-broadcast-buffers"}).values.parallel.ddp_broadcast_buffers);
  const Resolved before_another = read({"--disable_tqdm", "--max_steps", "3"});
  EXPECT_TRUE(before_another.values.output.disable_tqdm);
  EXPECT_EQ(before_another.values.optimization.max_steps, 3);
  EXPECT_EQ(error_of({"--no_disable_tqdm=true"}), "--no_disable_tqdm takes no value; write --disable_tqdm=true");
  EXPECT_EQ(error_of({"--disable_tqdm=maybe"}), "--disable_tqdm is 'maybe'; it must be true or false");
  EXPECT_EQ(error_of({"--no_max_steps"}).substr(0, 27), "unknown flag --no_max_steps");
}

TEST(ResolveFlags, NegativeNumbersAndOddTextAreValues) {
  EXPECT_EQ(read({"--max_steps", "-1"}).values.optimization.max_steps, -1);
  EXPECT_EQ(read({"--output_dir", "-o"}).values.output.output_dir, "-o");
  EXPECT_EQ(read({"--output_dir=--o=p"}).values.output.output_dir, "--o=p");
}

TEST(ResolveFlags, AliasesOfOtherVersions) {
  const Resolved resolved =
      read({"--evaluation_strategy", "epoch", "--per_gpu_train_batch_size", "4", "--ddp_backend", "gloo"});
  EXPECT_EQ(resolved.values.output.eval_strategy, Interval::epoch);
  EXPECT_EQ(resolved.origin("eval_strategy").str(), "--evaluation_strategy");
  EXPECT_EQ(resolved.values.optimization.per_device_train_batch_size, 4);
  EXPECT_EQ(resolved.values.parallel.backend, "gloo");
  EXPECT_EQ(error_of({"--eval_strategy", "no", "--evaluation_strategy", "steps"}),
            "--evaluation_strategy steps contradicts --eval_strategy no, given earlier; keep one of them");
}

// transformers v5: "warmup_steps: float in [0, 1) is a ratio".
TEST(ResolveFlags, WarmupStepsBelowOneAreAShare) {
  const Resolved resolved = read({"--warmup_steps", "0.1"});
  EXPECT_EQ(resolved.values.optimization.warmup_ratio, 0.1);
  EXPECT_EQ(resolved.values.optimization.warmup_steps, 0);
  EXPECT_EQ(resolved.origin("warmup_ratio").str(), "--warmup_steps");
  EXPECT_EQ(read({"--warmup_steps", "7"}).values.optimization.warmup_steps, 7);
}

TEST(ResolveFlags, UnknownFlagsNameTheNearest) {
  EXPECT_EQ(error_of({"--learning_rte", "1"}), "unknown flag --learning_rte; did you mean --learning_rate?");
  EXPECT_EQ(error_of({"--max-stesp=1"}), "unknown flag --max-stesp; did you mean --max_steps?");
  EXPECT_EQ(
      error_of({"--xyzzy", "1"}),
      "unknown flag --xyzzy; tessera train --help lists all flags, and --unknown warn ignores other programs' flags");
  EXPECT_EQ(error_of({"--disable_flash_attn2"}),
            "unknown flag --disable_flash_attn2; tessera train --help lists all flags")
      << "not --use_flash_attn, its opposite";
  EXPECT_EQ(error_of({"stray"}), "unexpected argument 'stray': write settings as --name value");
  EXPECT_EQ(error_of({"--"}), "unexpected argument '--': write settings as --name value");
}

// argparse accepts a prefix that only one argument has.
TEST(ResolveFlags, UniqueBeginningsAreCompleted) {
  const Resolved resolved = read({"--logging_step", "5", "--num_train_epoch=2", "--tokenizer", "t"});
  EXPECT_EQ(resolved.values.output.logging_steps, 5);
  EXPECT_EQ(resolved.values.optimization.num_train_epochs, 2);
  EXPECT_EQ(resolved.values.model.tokenizer_name, "t");
  ASSERT_EQ(resolved.notes.size(), 3u);
  EXPECT_EQ(resolved.notes[0], "--logging_step is interpreted as --logging_steps, the only argument with this prefix");
  EXPECT_EQ(error_of({"--logging_s", "5"}).find("unknown flag --logging_s"), 0u) << "steps, or strategy";
  EXPECT_EQ(error_of({"--max_step", "1", "--strict"}), "unknown flag --max_step; did you mean --max_steps?");
}

TEST(ResolveFlags, MissingAndEmptyValues) {
  EXPECT_EQ(error_of({"--max_steps"}), "--max_steps needs a value (N)");
  EXPECT_EQ(error_of({"--train_file", "--max_steps", "3"}), "--train_file needs a value (FILE...)");
  EXPECT_EQ(
      error_of({"--optim"}),
      "--optim needs a value (adamw|adam|sgd|adagrad|lion|adafactor|lamb|lars|muon|rmsprop|adamw_8bit|lion_8bit)");
  EXPECT_EQ(error_of({"--train_file="}), "--train_file has an empty value; remove the flag to keep the default");
}

TEST(ResolveFlags, OfAFlagGivenTwiceTheLastCounts) {
  EXPECT_EQ(read({"--seed", "7", "--seed=7"}).values.optimization.seed, 7);
  const Resolved twice = read({"--seed", "7", "--disable-tqdm", "--seed", "8", "--no_disable_tqdm"});
  EXPECT_EQ(twice.values.optimization.seed, 8) << "as in argparse: train.sh \"$@\"";
  EXPECT_FALSE(twice.values.output.disable_tqdm);
  EXPECT_EQ(twice.notes, (Words{"--seed is given twice: 8 is used, not 7",
                                "--no_disable_tqdm is given twice: false is used, not true"}));
}

TEST(ResolveFlags, AllProblemsAreReportedTogether) {
  EXPECT_EQ(error_of({"--max_steps", "x", "--adam_beta1", "1", "--otpim", "sgd", "--save_strategy", "never"}),
            "4 problems in the configuration:\n"
            "  --max_steps is 'x'; it must be an integer\n"
            "  --adam_beta1 is 1; it must be at least 0 and less than 1\n"
            "  unknown flag --otpim; did you mean --optim?\n"
            "  --save_strategy is 'never'; it must be one of no, steps, epoch, best");
}

TEST(ResolveFlags, EnvironmentLiesBetweenDefaultAndFlag) {
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "TESSERA_BACKEND") return "gloo";
    if (name == "WORLD_SIZE") return "3";
    return std::nullopt;
  };
  const Resolved resolved = resolve_flags({"--num_processes", "2"}, environment);
  EXPECT_EQ(resolved.values.parallel.backend, "gloo");
  EXPECT_EQ(resolved.origin("backend").str(), "environment TESSERA_BACKEND");
  EXPECT_EQ(resolved.values.parallel.num_processes, 2);
  EXPECT_EQ(resolved.origin("num_processes").str(), "--num_processes");
  EXPECT_EQ(resolve_flags({}, environment).origin("num_processes").str(), "environment WORLD_SIZE");
  const auto bad = [](const std::string& name) {
    return name == "TESSERA_BACKEND" ? std::optional<std::string>("smoke") : std::nullopt;
  };
  EXPECT_THROW(resolve_flags({}, bad), InputError);
  const auto empty = [](const std::string&) { return std::optional<std::string>(""); };
  EXPECT_EQ(resolve_flags({}, empty).origin("backend").str(), "default");
}

TEST(ResolveFlags, DerivedValuesSayWhy) {
  EXPECT_EQ(read({"--eval_steps", "5"}).values.output.eval_strategy, Interval::no) << "as in transformers";
  const Resolved strategy = read({"--eval_strategy", "steps", "--logging_steps", "7"});
  EXPECT_EQ(strategy.values.output.eval_steps, 7);
  EXPECT_EQ(strategy.origin("eval_steps").str(), "derived (logging_steps)");
  const Resolved file = read({"--validation_file", "v.txt"});
  EXPECT_EQ(file.values.data.validation_split_percentage, 0);
  EXPECT_EQ(file.origin("validation_split_percentage").str(), "derived (validation_file is given)");
  EXPECT_EQ(read({"--resume_from_checkpoint", "True"}).values.output.resume_from_checkpoint, "last");
  EXPECT_EQ(read({"--resume_from_checkpoint", "false"}).values.output.resume_from_checkpoint, "");
  EXPECT_EQ(read({"--resume_from_checkpoint", "out/checkpoint-5"}).values.output.resume_from_checkpoint,
            "out/checkpoint-5");
}

TEST(ResolveFlags, SettingsWithoutEffectAreNamed) {
  EXPECT_TRUE(unused_settings(read({"--max_steps", "5"})).empty());
  EXPECT_EQ(unused_settings(read({"--momentum", "0.9"})), Words{"--momentum has no effect: --optim is adamw"});
  EXPECT_TRUE(unused_settings(read({"--momentum", "0.9", "--optim", "sgd"})).empty());
  EXPECT_NE(unused_gpu(read({}), true).find("--device auto"), std::string::npos);
  EXPECT_EQ(unused_gpu(read({}), false), "");
  EXPECT_EQ(unused_gpu(read({"--device", "cpu"}), true), "") << "the user asked for it";
  EXPECT_EQ(unused_gpu(read({"--device", "auto"}), true), "");
  EXPECT_EQ(unused_settings(read({"--optim", "sgd", "--adam-beta1", "0.8"})),
            Words{"--adam-beta1 has no effect: --optim is sgd"});
  EXPECT_EQ(
      unused_settings(read({"--optim", "lion_32bit", "--adam_beta1", "0.8", "--adam_epsilon", "1e-6", "--nesterov"})),
      (Words{"--nesterov has no effect: --optim is lion",
             "--adam_epsilon has no effect: --optim is lion, whose parameters are set by --optim_args"}));
  EXPECT_EQ(unused_settings(read({"--max_steps", "5", "--num_train_epochs", "1"})),
            Words{"--num_train_epochs has no effect: --max_steps determines the length of the run"});
  EXPECT_EQ(unused_settings(read({"--save_strategy", "no", "--save_steps", "5"})),
            Words{"--save_steps has no effect: --save_strategy is no"});
  EXPECT_EQ(unused_settings(read({"--lr_scheduler_type", "constant", "--warmup_steps", "5"})).size(), 1u);
  EXPECT_EQ(unused_settings(read({"--validation_file", "v.txt", "--validation_split_percentage", "5"})).size(), 1u);
  EXPECT_EQ(unused_settings(read({"--eval_strategy", "epoch", "--eval_steps", "5"})).size(), 1u);
}

RC_GTEST_PROP(ResolveFlags, AnyWordsResolveOrThrowInputError, (const std::vector<std::string>& noise)) {
  Words arguments;
  for (const std::string& word : noise) {
    const Field& field = fields()[word.size() % fields().size()];
    arguments.push_back(word.size() % 3 == 0   ? word
                        : word.size() % 3 == 1 ? "--" + word
                                               : concat("--", field.name, "=", word));
  }
  try {
    read(arguments);
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace tessera::config
