// The rules between settings and the files they name: every message.

#include <tessera/config/resolve/resolve.h>

#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <tests/error_of.h>

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Validate : public ::testing::Test {
 protected:
  Validate() {
    write_file_atomically(path("text.txt"), "In the beginning\n");
    make_folders(path("model"));
    write_file_atomically(path("model/config.json"), R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64,
      "n_head": 2, "vocab_size": 300, "n_positions": 1024})");
    make_folders(path("empty"));
    make_folders(path("used/checkpoint-5"));
  }

  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }

  /// A complete command line, then `more`, which must not contradict it.
  Words good(const Words& more = {}) const {
    Words all = {"--config_name", "gpt2-tiny", "--train_file", path("text.txt"), "--output_dir", path("out")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static std::string error_of(const Words& arguments) {
    const auto no_environment = [](const std::string&) { return std::nullopt; };
    return tessera::testing::error_of([&] { resolve_and_validate(arguments, no_environment); });
  }

  TemporaryFolder folder_;
};

TEST_F(Validate, ACompleteCommandLinePasses) {
  EXPECT_EQ(error_of(good()), "");
  EXPECT_EQ(error_of({"--model_name_or_path", path("model"), "--train_file", path("text.txt"), "--output_dir",
                      path("empty")}),
            "");
  EXPECT_EQ(error_of(good({"--config_overrides", "n_layer=2", "--tokenizer_name", "byte", "--eval_steps", "5"})), "");
  EXPECT_FALSE(path_exists(path("out")));  // nothing was written
}

TEST_F(Validate, AStreamHasNoLengthAndNoEpochs) {
  EXPECT_EQ(error_of(good({"--streaming", "--max_steps", "5", "--train_sampling_strategy", "sequential"})), "");
  const auto refused = [&](const Words& more, const std::string& what) {
    const std::string error = error_of(good(Words{"--streaming"} + more));
    EXPECT_NE(error.find(what), std::string::npos) << error;
  };
  refused({}, "needs --max_steps");
  for (const Words& more : {Words{"--group_by_length"}, Words{"--blend_mode", "first_exhausted"},
                            Words{"--dataloader_drop_last"}, Words{"--ignore_data_skip"}})
    refused(more + Words{"--max_steps", "5"}, "--streaming");
  refused({"--max_steps", "5", "--save_strategy", "epoch"}, "does not know where an epoch ends; use steps");
  refused({"--max_steps", "5", "--eval_strategy", "steps"}, "no evaluation data can be split off a stream");
  EXPECT_EQ(error_of(good({"--streaming", "--max_steps", "5", "--eval_strategy", "steps", "--validation_file",
                           path("text.txt")})),
            "");
}

TEST_F(Validate, MadeUpDataStandAlone) {
  const Words mock_data = {"--config_name", "gpt2-tiny", "--output_dir", path("out"), "--mock_data"};
  EXPECT_EQ(error_of(mock_data), "");
  EXPECT_EQ(error_of(mock_data + Words{"--eval_strategy", "steps"}), "");
  EXPECT_EQ(
      error_of(mock_data + Words{"--train_file", path("text.txt")}),
      concat("--mock_data generates the data, but --train_file names ", path("text.txt"), ": use only one of them"));
  EXPECT_EQ(error_of(mock_data + Words{"--validation_file", path("text.txt")}),
            concat("--mock_data generates the data, but --validation_file names ", path("text.txt"),
                   ": use only one of them"));
  EXPECT_EQ(error_of(mock_data + Words{"--streaming", "--max_steps", "5"}),
            "--mock_data generates its rows when they are read, so there is nothing to tokenize ahead: remove "
            "--streaming");
}

// The model's state passes through a row from the first token to the last.
TEST_F(Validate, LinearAttentionReadsWholeRows) {
  const Words linear = {"--config_name",
                        "megatron-gpt-tiny",
                        "--mock_data",
                        "--output_dir",
                        path("out"),
                        "--config_overrides",
                        R"({"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]})"};
  EXPECT_EQ(error_of(linear + Words{"--tp_size", "2", "--pp_size", "2", "--num_processes", "4"}), "");
  EXPECT_EQ(error_of(linear + Words{"--cp_size", "2", "--num_processes", "2"}),
            "--cp_size 2: the model has linear attention, which carries a state along each row, so rows cannot be cut; "
            "remove it, or use --tp_size or --pp_size to cut the model");
  EXPECT_EQ(
      error_of(linear + Words{"--reset_position_ids"}),
      "--reset_position_ids: the model has linear attention, whose state is not reset between documents; remove it");
}

TEST_F(Validate, WhatIsMissing) {
  EXPECT_EQ(error_of({}),
            "3 problems in the configuration:\n"
            "  no model: use --model_name_or_path DIR to start from its weights, or --config_name NAME|FILE (gpt2, "
            "gpt2-tiny, llama-tiny, a config.json) to start from scratch\n"
            "  --train_file is missing: set it to a .txt or .jsonl file, or a .bin with its .idx\n"
            "  --output_dir is missing: set it to a folder for model, metrics and report");
}

TEST_F(Validate, AMistypedFlagIsNotAlsoMissing) {
  EXPECT_EQ(error_of({"--config_name", "gpt2", "--trian_file", path("text.txt"), "--output_dir", path("out")}),
            "unknown flag --trian_file; did you mean --train_file?");
}

TEST_F(Validate, Model) {
  const Words rest = {"--train_file", path("text.txt"), "--output_dir", path("out")};
  const auto with = [&](Words words) {
    words.insert(words.end(), rest.begin(), rest.end());
    return error_of(words);
  };
  EXPECT_EQ(with({"--model_name_or_path", path("model"), "--config_name", "gpt2"}),
            "--model_name_or_path and --config_name exclude each other: the first starts from weights, the second from "
            "scratch");
  EXPECT_EQ(with({"--model_name_or_path", path("model"), "--config_overrides", "n_layer=2"}),
            "--config_overrides needs --config_name: a model with weights cannot change its shape");
  EXPECT_EQ(with({"--model_name_or_path", path("none")}),
            concat("--model_name_or_path ", path("none"), ": no such folder (nothing is downloaded)"));
  EXPECT_EQ(with({"--model_name_or_path", path("text.txt")}),
            concat("--model_name_or_path ", path("text.txt"), " is a file, not a folder"));
  EXPECT_EQ(with({"--model_name_or_path", path("empty")}),
            concat("--model_name_or_path ", path("empty"),
                   ": the folder has neither config.json (a model) nor adapter_config.json (LoRA adapters of one)"));
  EXPECT_EQ(with({"--config_name", path("none/config.json")}),
            concat("--config_name ", path("none/config.json"), ": no such file or folder"));
  EXPECT_EQ(with({"--config_name", path("empty")}),
            concat("--config_name ", path("empty"), ": the folder has no config.json"));
  EXPECT_EQ(with({"--config_name", "gpt2", "--config_overrides", "n_layer"}),
            "--config_overrides: 'n_layer' has no '=' (expected key=value,key=value)");
  EXPECT_EQ(with({"--config_name", "gpt2", "--tokenizer_name", path("none")}),
            concat("--tokenizer_name ", path("none"),
                   ": no such file or folder (nothing is downloaded; 'byte' needs no file)"));
}

TEST_F(Validate, DataFiles) {
  const auto with = [&](const std::string& train, Words more = {}) {
    Words words = {"--config_name", "gpt2", "--output_dir", path("out"), "--train_file", train};
    words.insert(words.end(), more.begin(), more.end());
    return error_of(words);
  };
  EXPECT_EQ(with(path("none.txt")), concat("--train_file ", path("none.txt"), ": no such file"));
  EXPECT_EQ(with(concat("0.5 ", path("text.txt"), " 0.5 ", path("none.txt"))),
            concat("--train_file ", path("none.txt"), ": no such file"));
  EXPECT_EQ(with(concat("0 ", path("text.txt"))),
            concat("--train_file: the list of files '0 ", path("text.txt"), "': the weight 0 is not above 0"));
  EXPECT_EQ(with(path("*.none")), "");  // matches are checked when the pattern is read
  write_file_atomically(path("tokens.bin"), "");
  EXPECT_EQ(with(path("tokens.bin")),
            concat("--train_file ", path("tokens.bin"), ": its index ", path("tokens.idx"), " is missing"));
  EXPECT_EQ(with(path("text.txt"), {"--validation_file", path("v.txt")}),
            concat("--validation_file ", path("v.txt"), ": no such file"));
}

TEST_F(Validate, Schedule) {
  EXPECT_EQ(error_of(good({"--warmup_steps", "5", "--warmup_ratio", "0.1"})), "");
  EXPECT_EQ(error_of(good({"--warmup_steps", "50", "--max_steps", "20"})),
            "--warmup_steps is 50, more than the 20 steps of --max_steps");
  EXPECT_EQ(error_of(good({"--warmup_steps", "20", "--max_steps", "20"})), "");
}

TEST_F(Validate, Parallelism) {
  EXPECT_EQ(error_of(good({"--backend", "local", "--num_processes", "2"})),
            "--backend local is for one process; --num_processes is 2 (use gloo)");
  EXPECT_EQ(error_of(good({"--backend", "local", "--num_processes", "1"})), "");
  EXPECT_EQ(error_of(good({"--backend", "gloo", "--device", "cuda"})),
            "--backend gloo moves CPU tensors but --device is cuda: use nccl or auto");
  EXPECT_EQ(error_of(good({"--backend", "nccl"})),
            "--backend nccl moves CUDA tensors but --device is cpu: use gloo or auto");
}

TEST_F(Validate, Evaluation) {
  EXPECT_EQ(error_of(good({"--eval_steps", "5", "--eval_strategy", "no"})), "");
  EXPECT_EQ(error_of(good({"--eval_strategy", "epoch", "--validation_split_percentage", "0"})),
            "--eval_strategy epoch has no evaluation data: use --validation_file, or a --validation_split_percentage "
            "above 0");
  EXPECT_EQ(error_of(good({"--eval_strategy", "epoch", "--validation_file", path("text.txt")})), "");
}

TEST_F(Validate, OutputFolder) {
  const auto with = [&](const std::string& output, Words more = {}) {
    Words words = {"--config_name", "gpt2", "--train_file", path("text.txt"), "--output_dir", output};
    words.insert(words.end(), more.begin(), more.end());
    return error_of(words);
  };
  EXPECT_EQ(with(path("used")),
            concat("--output_dir ", path("used"), " is not empty (1 entry): choose another folder, resume with ",
                   "--resume_from_checkpoint last, or replace its run with --overwrite_output_dir (files that no ",
                   "run wrote stay)"));
  EXPECT_EQ(with(path("used"), {"--overwrite_output_dir"}), "");
  EXPECT_EQ(with(path("used"), {"--resume_from_checkpoint", "last"}), "");
  EXPECT_EQ(with(path("used"), {"--resume_from_checkpoint", "true"}), "");
  EXPECT_NE(with(path("used"), {"--resume_from_checkpoint", "false"}), "");
  EXPECT_EQ(with(path("used"), {"--resume_from_checkpoint", path("used/checkpoint-5")}), "");
  EXPECT_EQ(with(path("used"), {"--resume_from_checkpoint", path("used/checkpoint-6")}),
            concat("--resume_from_checkpoint ", path("used/checkpoint-6"), ": no such folder (or use 'last')"));
  EXPECT_EQ(with(path("empty"), {"--resume_from_checkpoint", "last"}),
            concat("--resume_from_checkpoint last: ", path("empty"),
                   " has no complete checkpoint-N folder; remove the flag to start from scratch"));
  EXPECT_EQ(with(path("text.txt")), concat("--output_dir ", path("text.txt"), " is a file, not a folder"));
  EXPECT_EQ(with(path("text.txt/below/here")), concat("--output_dir ", path("text.txt/below/here"),
                                                      " cannot be created: 'text.txt' is a file, not a folder"));
  EXPECT_EQ(with(path("new/below/here/")), "");
}

/// Files that shells and file systems leave in a folder do not make the error suggest a flag that overwrites a run.
TEST_F(Validate, LogsAndHiddenFilesDoNotCountInTheOutputFolder) {
  const auto with = [&](const std::string& output) {
    return error_of({"--config_name", "gpt2", "--train_file", path("text.txt"), "--output_dir", output});
  };
  make_folders(path("mine/lost+found"));
  for (const char* name : {"train.log", "slurm-7.out", "job.err", "job.pid", ".gitkeep"})
    write_file_atomically(path(concat("mine/", name)), "text");
  EXPECT_EQ(with(path("mine")), "");
  write_file_atomically(path("mine/thesis.txt"), "text");
  EXPECT_EQ(
      with(path("mine")),
      concat("--output_dir ", path("mine"), " is not empty (1 entry, among them thesis.txt), and contains no run: ",
             "choose another folder, or start in it with --overwrite_output_dir, which removes none of these ",
             "files"));
  make_folders(path("logs/old.log"));  // a folder of that name does not count as a log
  EXPECT_NE(with(path("logs")), "");
}

TEST_F(Validate, ProblemsOfBothStagesComeTogether) {
  EXPECT_EQ(error_of({"--config_name", "gpt2", "--max_steps", "many", "--train_file", path("none.txt"), "--output_dir",
                      path("out")}),
            concat("2 problems in the configuration:\n  --max_steps is 'many'; it must be an integer\n  --train_file ",
                   path("none.txt"), ": no such file"));
}

}  // namespace
}  // namespace tessera::config
