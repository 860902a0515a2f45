// Errors of tessera::Trainer and `tessera train` about settings that depend on evaluations: both have the same rules
// and texts.
#include <tests/error_of.h>
#include <tests/faces/trainer_options.h>

#include <tessera/base/file.h>

namespace {

using namespace tessera;
using namespace tessera::testing;
using Words = std::vector<std::string>;

Words operator+(Words all, const Words& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// The error of Trainer::train() with these flags. Collective.
std::string trainer_says(const Words& flags, bool evaluates = true) {
  return error_of([&] {
    TrainerOptions given = options(flags);
    if (evaluates) given.eval_dataset = steps_of(1);
    Trainer(std::move(given)).train();
  });
}

TEST(TrainerRules, both_faces_refuse_in_the_same_words) {
  const TemporaryFolder folder;
  const std::string text = path_join(folder.path(), "text.txt");
  write_file_atomically(text, "In the beginning\n");
  const Words out = {"--output_dir=" + path_join(folder.path(), "out")}, best = {"--load_best_model_at_end"};
  const Words complete = {"--config_name=gpt2-tiny", "--train_file=" + text};
  const std::pair<Words, std::string> cases[] = {
      {best,
       "--load_best_model_at_end needs an --eval_strategy that equals --save_strategy, so that evaluated states are "
       "saved; they are no and "
       "steps (--save_strategy best works with either)"},
      {best + Words{"--save_strategy=no"},
       "--load_best_model_at_end needs evaluations and checkpoints: use --eval_strategy and --save_strategy steps or "
       "epoch"},
      {best + Words{"--eval_strategy=epoch"},
       "--load_best_model_at_end needs an --eval_strategy that equals --save_strategy, so that evaluated states are "
       "saved; they are epoch "
       "and steps (--save_strategy best works with either)"},
      {best + Words{"--eval_strategy=steps", "--eval_steps=2", "--save_steps=3"},
       "--load_best_model_at_end needs a --save_steps that is a multiple of --eval_steps, so that evaluated states are "
       "saved; 3 is not a "
       "multiple of 2"},
      {best + Words{"--eval_strategy=steps", "--eval_steps=0.5", "--save_steps=3"},
       "--load_best_model_at_end needs a --save_steps (3) that is a multiple of --eval_steps (0.5): set both as "
       "numbers of steps, or both as shares"},
      {{"--save_strategy=best"},
       "--save_strategy best saves after evaluations, but --eval_strategy is no: use --eval_strategy steps or epoch"},
      {{"--lr_scheduler_type=reduce_lr_on_plateau"},
       "--lr_scheduler_type reduce_lr_on_plateau depends on evaluations, but --eval_strategy is no: use "
       "--eval_strategy steps or epoch"}};
  run_ranks(1, [&](comm::World&) {
    for (const auto& [flags, says] : cases) {
      EXPECT_EQ(error_of([&] { config::resolve_and_validate(complete + out + flags); }), says);
      EXPECT_EQ(trainer_says(out + flags), says);
    }
  });
  EXPECT_FALSE(path_exists(path_join(folder.path(), "out"))) << "before anything is written";
}

TEST(TrainerRules, what_only_the_program_can_give) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World&) {
    const Words best = {"--load_best_model_at_end", "--eval_strategy=steps"}, out = {"--output_dir=" + folder.path()};
    const std::string nothing =
        " follows the evaluations, but there is no data to evaluate on: set TrainerOptions::eval_dataset";
    EXPECT_EQ(trainer_says(best + out, false), "Trainer: --load_best_model_at_end" + nothing);
    EXPECT_EQ(trainer_says({"--save_strategy=best", "--eval_strategy=epoch", out[0]}, false),
              "Trainer: --save_strategy best" + nothing);
    EXPECT_EQ(trainer_says({"--lr_scheduler_type=reduce_lr_on_plateau", "--eval_strategy=epoch"}, false),
              "Trainer: --lr_scheduler_type reduce_lr_on_plateau" + nothing);
    EXPECT_EQ(trainer_says(best),
              "Trainer: --load_best_model_at_end needs a folder for its checkpoints: set --output_dir");
    EXPECT_EQ(trainer_says(best, false),
              "2 problems in the configuration:\n  Trainer: --load_best_model_at_end" + nothing +
                  "\n  Trainer: --load_best_model_at_end needs a folder for its checkpoints: set --output_dir");
    EXPECT_EQ(trainer_says({"--lr_scheduler_type=reduce_lr_on_plateau", "--eval_strategy=epoch"}), "")
        << "needs no folder";
  });
}

}  // namespace
