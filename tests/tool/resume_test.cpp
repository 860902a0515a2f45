#include "program.h"

#include <chrono>
#include <csignal>
#include <thread>

namespace tessera::testing {
namespace {

class ResumeTest : public ToolTest {
 protected:
  /// Starts a run that would take very long, waits until it has logged two steps, sends the signal, and returns the
  /// exit code.
  int stop_while_training(const Strings& arguments, const std::string& output, int signal) const {
    launch::ProcessOptions options;
    options.command = Strings{program} + arguments;
    options.environment = {{"OMP_NUM_THREADS", "1"}};
    options.capture_stdout = options.capture_stderr = true;  // hides the output, which is far smaller than a pipe's
                                                             // buffer
    launch::Process process(options);
    const std::string path = path_join(at(output), "metrics.jsonl");
    const Stopwatch watch;
    const auto pause = [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return watch.seconds() < watch.limit(60);
    };
    while (!process.status() && (!path_exists(path) || split(read_file(path), '\n').size() < 3) && pause()) {
    }
    process.signal_group(signal);
    while (!process.status() && pause()) {
    }
    const auto status = process.status();
    if (!status) return -1;
    process.reap();
    return launch::exit_code_of(*status);
  }

  /// A run with dropout, so that random numbers have to continue as well.
  Strings with_dropout(const std::string& output, const Strings& more) const {
    Strings arguments = training(output, more);
    for (std::string& word : arguments)
      if (word.starts_with("n_layer=")) word += ",resid_pdrop=0.1,embd_pdrop=0.1,attn_pdrop=0.1";
    return arguments;
  }
};

TEST_F(ResumeTest, ContinuesAsIfItHadNotStopped) {
  for (const char* processes : {"1", "2"}) {
    const std::string whole = concat("whole", processes), rest = concat("rest", processes);
    const Strings common = Strings{"--num_processes", processes} + batch(3, 2, 6);
    const auto first = tessera(with_dropout(whole, common + Strings{"--save_steps", "4"}));
    ASSERT_EQ(first.exit_code, 0) << first.err;
    const auto second =
        tessera(with_dropout(rest, common + Strings{"--resume_from_checkpoint", path_join(at(whole), "checkpoint-4")}));
    ASSERT_EQ(second.exit_code, 0) << second.err;
    EXPECT_FALSE(contains(second.err, "others than before")) << second.err;
    const auto expected = curve(whole), found = curve(rest);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found.at(5), expected.at(5));
    EXPECT_EQ(found.at(6), expected.at(6));
    EXPECT_EQ(read_file(path_join(at(rest), "model.safetensors")), read_file(path_join(at(whole), "model.safetensors")))
        << "bit by bit";
    for (const std::string& name : list_folder(path_join(at(whole), "checkpoint-6"))) {
      if (!name.ends_with(".safetensors")) continue;
      EXPECT_TRUE(read_file(path_join(at(rest), "checkpoint-6/" + name)) ==
                  read_file(path_join(at(whole), "checkpoint-6/" + name)))
          << name;
    }
  }
}

TEST_F(ResumeTest, LastContinuesInPlaceAndKeepsTheCurve) {
  ASSERT_EQ(tessera(training("out", batch(6, 1, 3))).exit_code, 0);
  const auto run = tessera(training("out", batch(6, 1, 5) + Strings{"--resume_from_checkpoint", "last"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "settings that differ from before: max_steps 5 (was 3)\n")) << run.err;
  ASSERT_EQ(tessera(training("whole", batch(6, 1, 5))).exit_code, 0);
  EXPECT_EQ(curve("out"), curve("whole"));
  int ends = 0;
  for (const Value& line : metrics("out"))
    if (line.find("event") != nullptr) ++ends;
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(read_json(path_join(at("out"), "trainer_state.json")).at("log_history").items().size(), 6u)
      << "five steps and the end";
}

TEST_F(ResumeTest, OtherRowsPerStepAndOtherDataAreToldWithBothValues) {
  ASSERT_EQ(tessera(training("out", batch(3, 1, 2))).exit_code, 0);
  const auto go_on = [&](int steps, const Strings& more = {}) {
    const auto run = tessera(training(
        "out", batch(3, 1, steps) + Strings{"--num_processes", "2", "--resume_from_checkpoint", "last"} + more));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.err;
  };
  const std::string rows = go_on(3);
  EXPECT_TRUE(contains(rows, "rows per step 6 of 2 processes (was 3 of 1)")) << rows;
  EXPECT_FALSE(contains(rows, "training data ")) << rows;
  const std::string same = go_on(4);
  EXPECT_FALSE(contains(same, "this run's inputs differ")) << same;

  const std::string text = read_file(at("text.txt"));
  write_file_atomically(at("text.txt"), text + text.substr(0, 1000));
  const std::string appended = go_on(5);
  EXPECT_TRUE(contains(appended, "warning: this run's inputs differ")) << appended;
  EXPECT_TRUE(contains(appended, "training data ")) << appended;
  EXPECT_FALSE(contains(appended, "rows per step")) << appended;
  const std::string again = go_on(6, {"--ignore_data_skip", "true"});
  EXPECT_TRUE(contains(again, "ignore_data_skip true (was false)")) << again;
  EXPECT_FALSE(contains(again, "this run's inputs differ")) << again;
}

TEST_F(ResumeTest, AnotherNumberOfProcessesContinuesToo) {
  ASSERT_EQ(tessera(training("one", batch(6, 1, 4) + Strings{"--save_steps", "2"})).exit_code, 0);
  const auto run = tessera(training("two", batch(3, 1, 4) + Strings{"--num_processes", "2", "--resume_from_checkpoint",
                                                                    path_join(at("one"), "checkpoint-2")}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NEAR(curve("two").at(4), curve("one").at(4), 1e-6 * curve("one").at(4));
}

TEST_F(ResumeTest, SigtermSavesAndTheRunCanContinue) {
  for (const char* processes : {"1", "2"}) {
    const std::string output = concat("out", processes);
    const Strings long_run = training(output, Strings{"--num_processes", processes} + batch(3, 1, 1'000'000));
    EXPECT_EQ(stop_while_training(long_run, output, SIGTERM), 3);
    const Value end = end_line(output);
    EXPECT_EQ(end.at("reason").as_string(), "terminated");
    const std::int64_t step = end.at("steps").as_int();
    EXPECT_GE(step, 2);
    EXPECT_TRUE(path_exists(path_join(at(output), concat("checkpoint-", step, "/manifest.json"))));
    EXPECT_FALSE(path_exists(path_join(at(output), "model.safetensors"))) << "the model is not finished";

    const auto more =
        tessera(training(output, Strings{"--num_processes", processes, "--resume_from_checkpoint", "last"} +
                                     batch(3, 1, static_cast<int>(step) + 1)));
    ASSERT_EQ(more.exit_code, 0) << more.err;
    EXPECT_EQ(end_line(output).at("steps").as_int(), step + 1);
  }
}

/// A stop request does not wait for an evaluation, which may be long (here minutes); the resumed run starts with that
/// evaluation, even if it was the run's last.
TEST_F(ResumeTest, AnEvaluationIsGivenUpWhenTheRunIsToStop) {
  for (const char* processes : {"1", "2"}) {
    const std::string output = concat("out", processes), last = processes[0] == '1' ? "2" : "1000";
    const Strings run = {"train",
                         "--config_name",
                         "gpt2-tiny",
                         "--config_overrides",
                         "n_layer=2,n_embd=32,n_head=2,n_positions=64",
                         "--mock_data",
                         "--block_size",
                         "64",
                         "--logging_steps",
                         "1",
                         "--eval_strategy",
                         "steps",
                         "--eval_steps",
                         "2",
                         "--lr_scheduler_type",
                         "reduce_lr_on_plateau",
                         "--lr_scheduler_kwargs",
                         "patience=0,threshold=10,factor=0.5",
                         "--per_device_eval_batch_size",
                         "1",
                         "--num_processes",
                         processes,
                         "--output_dir",
                         at(output)};
    EXPECT_EQ(stop_while_training(run + batch(1, 1, std::stoi(last)), output, SIGTERM), 3);
    const Value end = end_line(output);
    EXPECT_EQ(end.at("reason").as_string(), "terminated");
    EXPECT_EQ(end.at("steps").as_int(), 2);
    EXPECT_TRUE(path_exists(path_join(at(output), "checkpoint-2/manifest.json")));
    EXPECT_FALSE(path_exists(path_join(at(output), "model.safetensors"))) << "the model is not finished";
    for (const Value& line : metrics(output)) EXPECT_EQ(line.find("eval_loss"), nullptr) << "half of an evaluation";
    const auto more = tessera(run + batch(1, 1, std::min(std::stoi(last), 3)) +
                              Strings{"--max_eval_samples", "8", "--resume_from_checkpoint", "last"});
    ASSERT_EQ(more.exit_code, 0) << more.err;
    std::vector<std::int64_t> evaluated;
    for (const Value& line : metrics(output))
      if (line.find("eval_loss") != nullptr && line.find("step") != nullptr)
        evaluated.push_back(line.at("step").as_int());
    EXPECT_EQ(evaluated.front(), 2) << more.err;
    if (last == "1000") EXPECT_EQ(curve(output, "learning_rate").at(3), 2.5e-5) << "the schedule has seen it";
    EXPECT_TRUE(path_exists(path_join(at(output), "model.safetensors")));
  }
}

// A batch system can start one command any number of times: SIGTERM counts as success, and every start resumes where
// the previous one stopped.
TEST_F(ResumeTest, OneCommandForTheFirstStartAndAllLaterOnes) {
  const Strings job = Strings{"--num_processes", "2", "--resume_from_checkpoint", "auto", "--sigterm_is_success"};
  EXPECT_EQ(stop_while_training(training("out", job + batch(3, 1, 1'000'000)), "out", SIGTERM), 0);
  const Value end = end_line("out");
  EXPECT_EQ(end.at("reason").as_string(), "terminated");
  const std::int64_t step = end.at("steps").as_int();
  EXPECT_TRUE(path_exists(path_join(at("out"), concat("checkpoint-", step, "/manifest.json"))));
  const auto more = tessera(training("out", job + batch(3, 1, static_cast<int>(step) + 1)));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_TRUE(contains(more.err, concat("at step ", step))) << more.err;
  EXPECT_EQ(end_line("out").at("steps").as_int(), step + 1);

  // A run killed before it saved anything starts from the beginning; a finished model is not trained further.
  make_folders(at("killed"));
  write_file_atomically(at("killed/.tessera-files"), "metrics.jsonl\n");
  write_file_atomically(at("killed/metrics.jsonl"), "");
  const auto anew = tessera(
      training("killed", Strings{"--resume_from_checkpoint", "auto", "--save_strategy", "no"} + batch(3, 1, 1)));
  ASSERT_EQ(anew.exit_code, 0) << anew.err;
  const auto again = tessera(training("killed", Strings{"--resume_from_checkpoint", "auto"} + batch(3, 1, 1)));
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(contains(again.err, "contains a finished model")) << again.err;
}

TEST_F(ResumeTest, SigintStopsWithoutSaving) {
  EXPECT_EQ(stop_while_training(training("out", batch(3, 1, 1'000'000)), "out", SIGINT), 130);
  EXPECT_EQ(end_line("out").at("reason").as_string(), "interrupted");
  for (const std::string& name : files("out")) EXPECT_FALSE(contains(name, "checkpoint")) << name;
}

TEST_F(ResumeTest, NothingToResumeFrom) {
  const auto run = tessera(training("out", batch(3, 1, 2) + Strings{"--resume_from_checkpoint", "last"}));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(contains(run.err, "no complete checkpoint-N folder")) << run.err;
  EXPECT_FALSE(path_exists(at("out")));
}

TEST_F(ResumeTest, ADamagedCheckpointIsPassedOver) {
  for (const auto& [processes, file] :
       {std::pair("1", "model.safetensors"), std::pair("2", "optimizer-00002-of-00002.safetensors"),
        std::pair("2", "config.json")}) {
    SCOPED_TRACE(file);
    const std::string out = concat("out", processes, file);
    const Strings common = batch(3, 1, 4) + Strings{"--num_processes", processes};
    ASSERT_EQ(tessera(training(out, common + Strings{"--save_steps", "2"})).exit_code, 0);
    const auto expected = curve(out);
    const std::string newest = path_join(at(out), concat("checkpoint-4/", file));
    std::string bytes = read_file(newest);
    bytes[bytes.size() / 2] ^= 1;
    write_file_atomically(newest, bytes);
    const auto run = tessera(training(out, common + Strings{"--resume_from_checkpoint", "last"}));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_TRUE(contains(run.err, "checkpoint-4.damaged")) << run.err;
    EXPECT_TRUE(contains(run.err, concat("checkpoint-4: ", file))) << run.err;
    EXPECT_TRUE(contains(run.err, "at step 2")) << run.err;
    EXPECT_EQ(curve(out), expected) << "from step 2 on as if nothing had happened";
    EXPECT_TRUE(path_exists(path_join(at(out), concat("checkpoint-4.damaged/", file)))) << "set aside, not deleted";
    EXPECT_TRUE(path_exists(path_join(at(out), "checkpoint-4/manifest.json"))) << "written anew by the resumed run";
  }
}

TEST_F(ResumeTest, ANamedDamagedCheckpointIsAnErrorThatNamesAWholeOne) {
  for (const char* processes : {"1", "2"}) {
    const std::string out = concat("out", processes);
    ASSERT_EQ(
        tessera(training(out, batch(3, 1, 4) + Strings{"--save_steps", "2", "--num_processes", processes})).exit_code,
        0);
    const std::string damaged = path_join(at(out), "checkpoint-4/trainer_state.json");
    write_file_atomically(damaged, read_file(damaged) + " ");
    const auto run = tessera(training(concat("other", processes),
                                      batch(3, 1, 6) + Strings{"--num_processes", processes, "--resume_from_checkpoint",
                                                               path_join(at(out), "checkpoint-4")}));
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_TRUE(contains(run.err, "trainer_state.json")) << run.err;
    EXPECT_TRUE(
        contains(run.err, "the newest whole checkpoint in the same folder is " + path_join(at(out), "checkpoint-2")))
        << run.err;
    EXPECT_EQ(run.err.find("newest whole checkpoint"), run.err.rfind("newest whole checkpoint"))
        << "told once: " << run.err;
    EXPECT_FALSE(path_exists(at(concat("other", processes))));
  }
}

}  // namespace
}  // namespace tessera::testing
