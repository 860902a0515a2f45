// Rules that relate settings to the model's sizes: the same errors as those of a run that has built the model.

#include <tessera/config/model/validate_model.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/config/resolve/validate_said.h>

#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::config {
namespace {

/// The problems of these flags, as reported by config check and --print_config.
std::string problems_of(const std::string& line) {
  std::vector<std::string> words;
  for (const std::string& word : split(line, ' '))
    if (!word.empty()) words.push_back(word);
  Problems problems;
  const Resolved resolved = resolve_flags(words, problems, [](const std::string&) { return std::nullopt; });
  validate_said(resolved, problems);
  return join(problems.lines, "; ");
}

TEST(ValidateModel, Lengths) {
  EXPECT_EQ(problems_of("--config_name gpt2-tiny --block_size 256 --max_seq_length 256"), "");
  EXPECT_EQ(problems_of("--config_name gpt2-tiny --block_size 257"),
            "--block_size 257 is longer than the model's 256 positions: lower it, or raise n_positions "
            "(--config_overrides) of a model trained from scratch");
  EXPECT_EQ(problems_of("--config_name gpt2-tiny --config_overrides n_positions=512 --block_size 257"), "");
  EXPECT_EQ(problems_of("--config_name llama-tiny --max_seq_length 1025"),
            "--max_seq_length 1025 is longer than the model's 1024 positions: lower it");
  DataConfig data;
  EXPECT_EQ(choose_block_size(data, 100), 100);
  EXPECT_EQ(choose_block_size(data, 5000), 1024);
}

// One matching class is enough; before the model is built, other classes are reported only when they are certainly
// wrong.
TEST(ValidateModel, ClassesToWrap) {
  const auto wraps = [](const std::string& classes) {
    return problems_of("--config_name llama-tiny --fsdp full_shard --transformer_layer_cls_to_wrap " + classes);
  };
  EXPECT_EQ(wraps("LlamaDecoderLayer,BertLayer"), "");
  EXPECT_EQ(wraps("Qwen2DecoderLayer"), "");
  EXPECT_EQ(wraps("BertLayer,GPT2Block"),
            "--transformer_layer_cls_to_wrap BertLayer,GPT2Block: a model of type \"llama\" has no such module: remove "
            "it, and the model's own blocks are wrapped");
}

TEST(ValidateModel, TheEndOfATextIsTheTokenizers) {
  const TemporaryFolder folder;
  const auto ends = [&](const std::string& token) {
    return problems_of(concat("--config_name llama-tiny --tokenizer_name ", folder.path(), " --eos_token ", token));
  };
  EXPECT_EQ(problems_of("--config_name llama-tiny --tokenizer_name byte --eos_token <|endoftext|>"), "");
  EXPECT_NE(ends("<|im_end|>").find("is not the tokenizer's own end-of-text token (it defines none)"),
            std::string::npos);
  write_file_atomically(path_join(folder.path(), "tokenizer_config.json"),
                        R"({"eos_token": {"content": "<|im_end|>"}})");
  EXPECT_EQ(ends("<|im_end|>"), "");
  EXPECT_EQ(ends("</s>"),
            "--eos_token </s> is not the tokenizer's own end-of-text token (<|im_end|>): set eos_token in its "
            "tokenizer_config.json and its id as eos_token_id in the model's config.json, or remove it");
}

TEST(ValidateModel, MultiTokenPrediction) {
  const std::string model = "--config_name llama-tiny --config_overrides mtp_num_layers=2 --num_processes 2 ";
  EXPECT_EQ(problems_of(model + "--tp_size 2"), "");
  for (const char* pipeline : {"--pp_size 2", "--pp_size 2 --pipeline_layout Ettt|tmmL",
                               "--pp_size 2 --pipeline_layout "
                               "Ett|ttL",
                               "--pp_size 2 --pipeline_layout Ettt|tmmL --mtp_loss_scaling_factor 0"})
    EXPECT_EQ(problems_of(concat(model, pipeline)), "") << pipeline;
  EXPECT_EQ(
      problems_of(model + "--pp_size 2 --pipeline_layout Ettt|tmL"),
      "pipeline layout 'Ettt|tmL', column 7: there is 1 depth of multi-token prediction (m) from here on, but the "
      "model has mtp_num_layers 2; the nearest layout is Et*3|tmmL");
  EXPECT_EQ(
      problems_of("--config_name llama-tiny --num_processes 2 --pp_size 2 --pipeline_layout Ettt|tmL"),
      "pipeline layout 'Ettt|tmL', column 7: there is 1 depth of multi-token prediction (m) from here on, but the "
      "model has none (mtp_num_layers); the nearest layout is Et*3|tL");
  EXPECT_EQ(problems_of(model + "--cp_size 2"),
            "--cp_size 2 with mtp_num_layers 2 of the model: multi-token prediction reads later tokens of the same "
            "row, which are on other processes; use --cp_size 1, or train without it: "
            "--mtp_loss_scaling_factor 0");
  EXPECT_EQ(problems_of(model + "--cp_size 2 --mtp_loss_scaling_factor 0"), "");
  EXPECT_NE(problems_of(model + "--preference_loss sigmoid").find("whole answers without multi-token prediction"),
            std::string::npos);
  EXPECT_NE(problems_of("--config_name gpt2-tiny --config_overrides mtp_num_layers=2")
                .find("mtp_num_layers 2: a model of type \"gpt2\" has no multi-token prediction; supported types"),
            std::string::npos);
}

TEST(ValidateModel, PositionsThatAreStretchedAreNotJudged) {
  EXPECT_EQ(problems_of(R"(--config_name llama-tiny --block_size 2000 --config_overrides {"rope_scaling":{"rope_type":)"
                        R"("linear","factor":4}})"),
            "");
  EXPECT_NE(problems_of(R"(--config_name llama-tiny --block_size 2000 --config_overrides {"rope_scaling":{"rope_type":)"
                        R"("yarn","factor":4}})"),
            "");
}

TEST(ValidateModel, Overrides) {
  EXPECT_EQ(problems_of("--config_name gpt2-tiny --config_overrides n_layers=5"),
            "config_overrides: the configuration has no \"n_layers\"; did you mean \"n_layer\"?");
  EXPECT_EQ(problems_of("--config_name gpt2-tiny --config_overrides n_layer=x"),
            "config_overrides: n_layer=\"x\": n_layer takes an integer");
  EXPECT_EQ(problems_of("--config_name gpt3"),
            "config_name \"gpt3\" is neither a file nor a preset; presets: gpt2, gpt2-tiny, llama-tiny, qwen2-tiny, "
            "qwen3-tiny, mixtral-tiny, qwen2-moe-tiny, qwen3-moe-tiny, deepseek-v3-tiny, "
            "starcoder2-tiny, opt-tiny, megatron-gpt-tiny");
}

TEST(ValidateModel, WhatTensorParallelismCuts) {
  EXPECT_EQ(problems_of("--config_name gpt2-tiny --tp_size 2 --num_processes 2"), "");
  const std::string heads = problems_of("--config_name gpt2-tiny --tp_size 8 --num_processes 8");
  EXPECT_TRUE(heads.starts_with(
      "tp=8: all ranks need the same number of attention heads, but the 4 of gpt2 are not divisible by 8"))
      << heads;
  const std::string inner =
      problems_of("--config_name llama-tiny --config_overrides intermediate_size=99 --tp_size 2 --num_processes 2");
  EXPECT_TRUE(inner.starts_with("tp=2: the MLP's intermediate size 99 of llama is not divisible by 2")) << inner;
  const std::string block = problems_of(
      "--config_name llama-tiny --tp_size 4 --num_processes 4 --sequence_parallel --block_size 130 --train_file a.txt");
  EXPECT_NE(block.find("the sequence of 130 tokens must be divisible by tp = 4 (sequence_parallel)"), block.npos)
      << block;
  EXPECT_EQ(problems_of("--config_name mixtral-tiny --config_overrides intermediate_size=99 --tp_size 2 "
                        "--num_processes 2"),
            "");
}

TEST(ValidateModel, StagesOfAPipeline) {
  EXPECT_EQ(problems_of("--config_name gpt2-tiny --pp_size 4 --num_processes 4"), "");
  EXPECT_EQ(
      problems_of("--config_name gpt2-tiny --config_overrides n_layer=2 --pp_size 8 --num_processes 8"),
      "pipeline rank 2 of 8 would get no part of the model: its 2 blocks are cut into 8 stages; use fewer (--pp_size, "
      "--pipeline_stages_per_rank), or another --pipeline_layout");
  const std::string layout =
      problems_of("--config_name gpt2-tiny --pp_size 2 --num_processes 2 --pipeline_layout Ett|tL");
  EXPECT_NE(layout.find("3"), layout.npos) << layout;
  EXPECT_NE(layout.find("4"), layout.npos) << layout;
  EXPECT_EQ(problems_of("--config_name gpt2-tiny --pp_size 2 --num_processes 2 --pipeline_layout flops"), "");
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "config.json");
  for (const auto& [type, can] : {std::pair{"llama", true}, {"gpt_neox", false}, {"bert", false}}) {
    write_file_atomically(file, concat(R"({"model_type": ")", type, R"(", "num_hidden_layers": 4, "hidden_size": 64,
      "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 300, "max_position_embeddings": 64})"));
    for (const char* cut : {"half_blocks", "Eta|fttL"}) {
      const std::string said = problems_of(
          concat("--config_name ", file, " --pp_size 2 --num_processes 2 --pipeline_layout ", cut, " --block_size 64"));
      EXPECT_EQ(said.find("cannot be cut") == said.npos, can) << type << ", " << cut << ": " << said;
    }
    const std::string whole = problems_of(
        concat("--config_name ", file, " --pp_size 2 --num_processes 2 --pipeline_layout Ett|ttL --block_size 64"));
    EXPECT_EQ(whole.find("cannot be cut"), whole.npos) << whole;
  }
}

TEST(ValidateModel, FilesOfModels) {
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "config.json");
  const std::string line = concat("--model_name_or_path ", folder.path(), " --block_size 65");
  write_file_atomically(file, "{}");
  EXPECT_NE(problems_of(line).find("neither model_type nor architectures is given"), std::string::npos);
  write_file_atomically(file, R"({"model_type": "t5"})");
  EXPECT_NE(problems_of(line).find("model type \"t5\" is not supported; known: gpt2, llama, "), std::string::npos);
  write_file_atomically(file, R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 300,
      "n_positions": 64})");
  EXPECT_TRUE(problems_of(line).starts_with("--block_size 65 is longer than the model's 64 positions"));
  write_file_atomically(file, "{\"model_type\": ");
  EXPECT_NE(problems_of(line).find("config.json:1:"), std::string::npos) << problems_of(line);
  EXPECT_EQ(problems_of(concat("--config_name ", folder.path(), "/none/config.json")),
            concat("--config_name ", folder.path(), "/none/config.json: no such file or folder"));
}

}  // namespace
}  // namespace tessera::config
