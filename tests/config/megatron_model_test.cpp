// Models from Megatron's arguments: Llama-like ones, the other families, experts, and their partitioning.

#include "accelerate_under_test.h"

#include <rapidcheck/gtest.h>
#include <tessera/architectures/presets.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/megatron/megatron_reading.h>

namespace tessera::config {
namespace {

using testing::Read;
using testing::Words;

const GetEnvironment no_environment = [](const std::string&) { return std::nullopt; };

Read read_line(const std::string& line) {
  Problems problems;
  Words words;
  for (const std::string& word : split(line, ' '))
    if (!word.empty()) words.push_back(word);
  std::vector<FileWord> arguments = typed_words(words);
  const Translation translation = read_megatron_flags(arguments, problems, no_environment);
  return testing::read_of(translation, problems);
}

const std::string llama =
    "--train-iters 5 --num-layers 4 --hidden-size 64 --num-attention-heads 4 --ffn-hidden-size 96 --swiglu "
    "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear --hidden-dropout 0 ";
const std::string latent =
    "--num-experts 8 --multi-latent-attention --qk-layernorm --moe-router-score-function sigmoid "
    "--moe-ffn-hidden-size 32 --moe-shared-expert-intermediate-size 64 ";

/// The model that a command line describes: its preset with the overrides.
Value model_of(const std::string& line) {
  const Read read = read_line(line);
  EXPECT_EQ(read.problems, Words{}) << line;
  Value config = architectures::model_preset(read.settings.at("config_name")).value_or(Value());
  for (const auto& [key, value] : parse_overrides(read.settings.at("config_overrides"))) {
    EXPECT_NE(config.find(key), nullptr) << key << " is not a member of " << read.settings.at("config_name");
    config.set(key, value);
  }
  return config;
}

std::string text_of(const Value& config, std::initializer_list<const char*> keys) {
  std::vector<std::string> parts;
  for (const char* key : keys) parts.push_back(concat(key, "=", dump_json(config.at(key), -1)));
  return join(parts, " ");
}

TEST(MegatronModel, BetweenGpt2AndLlama) {
  const std::string shape =
      "--train-iters 5 --num-layers 4 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 128 ";
  const std::string rope = shape + "--position-embedding-type rope ";
  EXPECT_EQ(text_of(model_of(rope), {"model_type", "use_bias", "intermediate_size", "num_key_value_heads", "head_dim",
                                     "residual_dropout", "embedding_dropout", "attention_dropout", "sliding_window"}),
            R"(model_type="starcoder2" use_bias=true intermediate_size=256 num_key_value_heads=4 head_dim=16 )"
            "residual_dropout=0.1 embedding_dropout=0.1 attention_dropout=0.1 sliding_window=null");
  EXPECT_EQ(text_of(model_of(rope + "--disable-bias-linear --group-query-attention --num-query-groups 2 "
                                    "--ffn-hidden-size 96 --hidden-dropout 0 --norm-epsilon 1e-6 --rotary-interleaved"),
                    {"use_bias", "intermediate_size", "num_key_value_heads", "residual_dropout", "norm_epsilon"}),
            "use_bias=false intermediate_size=96 num_key_value_heads=2 residual_dropout=0 norm_epsilon=1e-06");
  EXPECT_EQ(text_of(model_of(shape + "--disable-bias-linear --hidden-dropout 0.2 --init-method-std 0.01"),
                    {"model_type", "enable_bias", "activation_function", "ffn_dim", "dropout", "embedding_dropout",
                     "attention_dropout", "init_std"}),
            R"(model_type="opt" enable_bias=false activation_function="gelu" ffn_dim=256 dropout=0.2 )"
            "embedding_dropout=0.2 attention_dropout=0.1 init_std=0.01");
  EXPECT_EQ(text_of(model_of(shape + "--no-bias-gelu-fusion"), {"model_type", "activation_function"}),
            R"(model_type="gpt2" activation_function="gelu")");
}

TEST(MegatronModel, DenseFamilies) {
  EXPECT_EQ(text_of(model_of(llama), {"model_type", "mlp_bias"}), R"(model_type="llama" mlp_bias=false)");
  EXPECT_EQ(text_of(model_of(llama + "--qk-layernorm --kv-channels 32"), {"model_type", "head_dim", "attention_bias"}),
            R"(model_type="qwen3" head_dim=32 attention_bias=false)");
  EXPECT_EQ(text_of(model_of(llama + "--add-qkv-bias"), {"model_type", "intermediate_size"}),
            R"(model_type="qwen2" intermediate_size=96)");
}

TEST(MegatronModel, Mixtral) {
  EXPECT_EQ(text_of(model_of(llama + "--num-experts 8"),
                    {"model_type", "num_local_experts", "num_experts_per_tok", "intermediate_size"}),
            R"(model_type="mixtral" num_local_experts=8 num_experts_per_tok=2 intermediate_size=96)");
  EXPECT_EQ(text_of(model_of(llama + "--num-experts 8 --moe-ffn-hidden-size 48 --moe-router-topk 1 "
                                     "--moe-input-jitter-eps 0.01 --no-position-embedding"),
                    {"num_experts_per_tok", "intermediate_size", "router_jitter_noise"}),
            "num_experts_per_tok=1 intermediate_size=48 router_jitter_noise=0.01");
}

TEST(MegatronModel, QwensExperts) {
  EXPECT_EQ(text_of(model_of(llama + "--num-experts 8 --qk-layernorm --moe-ffn-hidden-size 32 --moe-layer-freq 2"),
                    {"model_type", "num_experts", "moe_intermediate_size", "intermediate_size", "norm_topk_prob",
                     "mlp_only_layers"}),
            R"(model_type="qwen3_moe" num_experts=8 moe_intermediate_size=32 intermediate_size=96 norm_topk_prob=true )"
            "mlp_only_layers=[1,3]");
  EXPECT_EQ(text_of(model_of(llama + "--num-experts 8 --moe-shared-expert-intermediate-size 64 "
                                     "--moe-shared-expert-gate --moe-router-pre-softmax"),
                    {"model_type", "shared_expert_intermediate_size", "norm_topk_prob", "qkv_bias"}),
            R"(model_type="qwen2_moe" shared_expert_intermediate_size=64 norm_topk_prob=false qkv_bias=false)");
}

TEST(MegatronModel, DeepSeek) {
  EXPECT_EQ(text_of(model_of(llama + latent),
                    {"model_type", "n_shared_experts", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                     "v_head_dim", "q_lora_rank", "first_k_dense_replace", "rope_scaling", "routed_scaling_factor"}),
            R"(model_type="deepseek_v3" n_shared_experts=2 kv_lora_rank=32 qk_nope_head_dim=128 qk_rope_head_dim=64 )"
            "v_head_dim=128 q_lora_rank=null first_k_dense_replace=0 rope_scaling=null routed_scaling_factor=1");
  EXPECT_EQ(text_of(model_of(llama + latent +
                             "--q-lora-rank 24 --kv-lora-rank 16 --qk-head-dim 8 --qk-pos-emb-head-dim 4 --v-head-dim "
                             "8 --moe-layer-freq ([0]*1+[1]*3) --moe-router-topk 4 --moe-router-num-groups 4 "
                             "--moe-router-group-topk 2 --moe-router-topk-scaling-factor 2.5 "
                             "--rotary-scaling-factor 40 --mscale 1 --mscale-all-dim 1"),
                    {"q_lora_rank", "head_dim", "num_key_value_heads", "first_k_dense_replace", "n_group", "topk_group",
                     "routed_scaling_factor", "rope_scaling"}),
            "q_lora_rank=24 head_dim=4 num_key_value_heads=4 first_k_dense_replace=1 n_group=4 topk_group=2 "
            "routed_scaling_factor=2.5 "
            R"(rope_scaling={"type":"yarn","factor":40,"original_max_position_embeddings":4096,"beta_fast":32,)"
            R"("beta_slow":1,"mscale":1,"mscale_all_dim":1})");
}

TEST(MegatronModel, LayersThatHaveExperts) {
  const auto dense = [](const std::string& pattern) {
    return dump_json(
        model_of(llama + "--num-experts 4 --qk-layernorm --moe-layer-freq " + pattern).at("mlp_only_layers"), -1);
  };
  EXPECT_EQ(dense("1"), "null");
  EXPECT_EQ(dense("3"), "[1,2]");
  EXPECT_EQ(dense("([1]*1+[0]*1)*2"), "[1,3]");
  EXPECT_EQ(dense("[0,1]+[1]*2"), "[0]");
  const auto problem = [](const std::string& pattern) {
    const Words problems = read_line(llama + "--num-experts 4 --qk-layernorm --moe-layer-freq " + pattern).problems;
    return problems.size() == 1 ? problems[0] : concat(problems.size(), " problems");
  };
  EXPECT_EQ(problem("[1]*3"), "--moe-layer-freq [1]*3: it specifies 3 layers, but the model has 4");
  EXPECT_EQ(problem("([1]*4"), "--moe-layer-freq ([1]*4: column 7: expected ')'");
  EXPECT_EQ(problem("[1]*4]"), "--moe-layer-freq [1]*4]: column 6 is invalid");
  EXPECT_EQ(problem("[x]"), "--moe-layer-freq [x]: column 2: expected a number");
  EXPECT_EQ(problem("[1]*65536*65536"), "--moe-layer-freq [1]*65536*65536: it has too many layers");
  EXPECT_EQ(problem(std::string(100, '(')),
            concat("--moe-layer-freq ", std::string(100, '('), ": it is nested too deeply"));
  EXPECT_EQ(problem("0"), "--moe-layer-freq 0: a number must be at least 1");
}

// Any pattern gives layers or exactly one problem.
RC_GTEST_PROP(MegatronModel, AnyPatternOfLayers, ()) {
  const std::string pattern = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("[]()*+,014")));
  if (pattern.empty()) return;
  const Read read = read_line(llama + "--num-experts 4 --qk-layernorm --moe-layer-freq " + pattern);
  RC_ASSERT(read.problems.size() <= 1);
}

TEST(MegatronModel, HowTheLoadIsKeptEven) {
  const auto settings = [](const std::string& line) {
    Read read = read_line(llama + "--weight-decay 0 --seed 1 " + line);
    EXPECT_EQ(read.problems, Words{}) << line;
    for (const char* name : {"config_name", "config_overrides", "max_steps"}) read.settings.erase(name);
    return read.settings_text();
  };
  const std::string experts = "--num-experts 4 ";
  EXPECT_EQ(settings(experts), "");
  EXPECT_EQ(settings(experts + "--moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 1e-3"),
            "router_aux_loss_coef=0.01 router_aux_loss_form=micro_batch router_z_loss_coef=0.001");
  EXPECT_EQ(settings(experts + "--moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type seq_aux_loss"),
            "router_aux_loss_coef=0.01 router_aux_loss_form=sequence");
  EXPECT_EQ(settings(experts + "--moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type global_aux_loss"),
            "router_aux_loss_coef=0.01 router_aux_loss_form=global_batch");
  EXPECT_EQ(settings(experts + "--moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type none"),
            "router_aux_loss_coef=0");
  EXPECT_EQ(settings(latent + "--moe-router-enable-expert-bias"), "router_bias_update_rate=0.001");
  EXPECT_EQ(settings(latent + "--moe-router-enable-expert-bias --moe-router-bias-update-rate 0.01"),
            "router_bias_update_rate=0.01");
  EXPECT_EQ(settings(latent + "--moe-router-bias-update-rate 0.01"), "");
}

TEST(MegatronModel, WithoutExpertsNothingActs) {
  const Read dense = read_line(llama +
                               "--moe-router-topk 2 --moe-aux-loss-coeff 0.1 --kv-lora-rank 8 "
                               "--expert-tensor-parallel-size 4 --rotary-percent 1");
  EXPECT_EQ(dense.problems, Words{});
  EXPECT_FALSE(dense.settings.contains("router_aux_loss_coef"));
  EXPECT_FALSE(dense.settings.contains("etp_size"));
  EXPECT_EQ(dense.notes,
            (Words{"--expert-tensor-parallel-size: has no effect: it is for mixtures of experts (--num-experts)",
                   "--kv-lora-rank: has no effect: it is for --multi-latent-attention",
                   "--moe-router-topk: has no effect: it is for mixtures of experts (--num-experts)",
                   "--moe-aux-loss-coeff: has no effect: it is for mixtures of experts (--num-experts)"}));
  EXPECT_EQ(read_line(llama + "--expert-model-parallel-size 2").problems,
            Words{"--expert-model-parallel-size 2 needs --num-experts"});
}

TEST(MegatronModel, WhatNoModelHereHas) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--num-experts 2 --moe-router-topk 3", "--moe-router-topk a token would use 3 of 2 experts"},
      {"--multi-latent-attention --add-qkv-bias",
       "--add-qkv-bias with --multi-latent-attention: latents have no biases; remove it"},
      {latent + "--moe-layer-freq 2", "--moe-layer-freq 2: DeepSeek-V3's dense layers come before its expert layers"},
      {latent + "--moe-router-num-groups 4 --moe-router-topk 4",
       "--moe-router-num-groups 4 needs --moe-router-topk 2, twice --moe-router-group-topk 1: DeepSeek-V3 scores "
       "groups by their two best experts"},
      {latent + "--moe-ffn-hidden-size 48",
       "--moe-shared-expert-intermediate-size 64 is not a multiple of --moe-ffn-hidden-size 48, as DeepSeek-V3's is"},
      {latent + "--rotary-scaling-factor 40 --mscale 0.5",
       "--mscale 0.5 needs --mscale-all-dim: without it the factor is 1"},
      {"--experimental-attention-variant dsa",
       "--experimental-attention-variant is 'dsa'; it must be one of gated_delta_net"},
      {"--experimental-attention-variant gated_delta_net --linear-attention-freq ([1]*3)",
       "--linear-attention-freq ([1]*3): it specifies 3 layers, but the model has 4"},
      {"--attention-output-gate --multi-latent-attention",
       "--attention-output-gate with --multi-latent-attention is not supported: remove it"},
      {"--num-experts 4 --moe-latent-size 8",
       "--moe-latent-size is not supported: only the experts of known models are supported; remove it"},
  };
  for (const auto& [line, problem] : cases) EXPECT_EQ(read_line(llama + line).problems, Words{problem}) << line;
  const std::string gpt2 = "--train-iters 5 --num-layers 2 --hidden-size 64 --num-attention-heads 4 ";
  EXPECT_EQ(read_line(gpt2 + "--num-experts 4").problems,
            Words{"--num-experts needs --disable-bias-linear: experts with biases are not implemented"});
  EXPECT_EQ(read_line(gpt2 + "--multi-latent-attention --qk-layernorm").problems,
            Words{"--qk-layernorm with --multi-latent-attention needs --normalization RMSNorm without "
                  "--apply-layernorm-1p, the only norms of latents here"});
  EXPECT_EQ(
      read_line(llama + "--num-experts 4 --moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0.1").problems,
      Words{"--moe-aux-loss-coeff with --moe-router-load-balancing-type sinkhorn: Megatron supports no loss there"});
}

// Architectures that no transformers family covers are built in Megatron's own form, and a warning names the argument
// that requires it.
TEST(MegatronModel, MegatronsOwnManner) {
  const std::string gpt2 = "--train-iters 5 --num-layers 4 --hidden-size 64 --num-attention-heads 4 ";
  const std::string rope = gpt2 + "--position-embedding-type rope ", experts = llama + "--num-experts 4 ";
  std::string with_biases = llama, with_dropout = llama;
  with_biases.erase(with_biases.find("--disable-bias-linear "), 22);
  with_dropout.erase(with_dropout.find("--hidden-dropout 0 "), 19);
  struct Case {
    std::string line, note;
    std::vector<std::pair<const char*, const char*>> members;
  };
  const std::vector<Case> cases = {
      {gpt2 + "--swiglu",
       "--swiglu: without --position-embedding-type rope and --normalization RMSNorm",
       {{"gated_linear_unit", "true"},
        {"hidden_act", R"("silu")"},
        {"intermediate_size", "128"},
        {"add_bias_linear", "true"},
        {"add_qkv_bias", "true"},
        {"hidden_dropout", "0.1"},
        {"position_embedding_type", R"("learned_absolute")"},
        {"normalization", R"("LayerNorm")"}}},
      {gpt2 + "--normalization RMSNorm",
       "--normalization: without --position-embedding-type rope and --swiglu",
       {{"normalization", R"("RMSNorm")"}, {"hidden_act", R"("gelu_new")"}, {"intermediate_size", "256"}}},
      {gpt2 + "--squared-relu", "--squared-relu", {{"hidden_act", R"("relu2")"}}},
      {gpt2 + "--apply-layernorm-1p --disable-bias-linear",
       "--apply-layernorm-1p",
       {{"layernorm_zero_centered_gamma", "true"}, {"hidden_act", R"("gelu")"}, {"add_qkv_bias", "false"}}},
      {gpt2 + "--kv-channels 8", "--kv-channels: 8 with 4 heads of 64", {{"head_dim", "8"}}},
      {gpt2 + "--disable-bias-linear --norm-epsilon 1e-6",
       "--norm-epsilon: 1e-06 without biases",
       {{"norm_epsilon", "1e-06"}}},
      {rope + "--rotary-percent 0.5", "--rotary-percent: 0.5", {{"partial_rotary_factor", "0.5"}}},
      {rope + "--qk-layernorm", "--qk-layernorm: without --swiglu", {{"qk_layernorm", "true"}}},
      {gpt2 + "--multi-latent-attention --q-lora-rank 24 --kv-lora-rank 16 --qk-head-dim 12 --qk-pos-emb-head-dim 8",
       "--multi-latent-attention: without --swiglu",
       {{"q_lora_rank", "24"},
        {"kv_lora_rank", "16"},
        {"qk_nope_head_dim", "12"},
        {"qk_rope_head_dim", "8"},
        {"v_head_dim", "128"},
        {"qk_layernorm", "false"},
        {"add_bias_linear", "true"},
        {"position_embedding_type", R"("learned_absolute")"}}},
      {llama + "--multi-latent-attention --qk-layernorm --rotary-percent 0.5",
       "--multi-latent-attention: without --num-experts",
       {{"q_lora_rank", "null"}, {"qk_layernorm", "true"}, {"partial_rotary_factor", "1.0"}}},
      {llama + "--experimental-attention-variant gated_delta_net --linear-attention-freq 3 --linear-key-head-dim 8 "
               "--linear-value-head-dim 16 --linear-num-key-heads 2 --linear-num-value-heads 4 "
               "--linear-conv-kernel-dim 3 --attention-output-gate",
       "--experimental-attention-variant",
       {{"layer_types", R"(["linear_attention","linear_attention","full_attention","linear_attention"])"},
        {"linear_key_head_dim", "8"},
        {"linear_value_head_dim", "16"},
        {"linear_num_key_heads", "2"},
        {"linear_num_value_heads", "4"},
        {"linear_conv_kernel_dim", "3"},
        {"attn_output_gate", "true"}}},
      {llama + "--attention-output-gate",
       "--attention-output-gate",
       {{"attn_output_gate", "true"}, {"layer_types", "null"}}},
      {with_dropout + latent + "--rotary-scaling-factor 40",
       "--num-layers: with hidden dropout in a Llama-like model (Megatron's default is 0.1; with --hidden-dropout 0 it "
       "belongs to Llama's family)",
       {{"num_experts", "8"}, {"shared_expert_intermediate_size", "64"}, {"router_scoring", R"("sigmoid")"}}},
      {with_biases + "--qk-layernorm",
       "--qk-layernorm: with biases everywhere, which only a plain Llama has",
       {{"add_bias_linear", "true"}, {"qk_layernorm", "true"}}},
      {with_dropout,
       "--num-layers: with hidden dropout in a Llama-like model (Megatron's default is 0.1; with --hidden-dropout 0 it "
       "belongs to Llama's family)",
       {{"hidden_dropout", "0.1"}, {"gated_linear_unit", "true"}}},
      {llama + "--qk-layernorm --add-qkv-bias",
       "--add-qkv-bias: with --qk-layernorm",
       {{"add_qkv_bias", "true"}, {"add_bias_linear", "false"}}},
      {gpt2 + "--disable-bias-linear --num-experts 4",
       "--num-experts: without --swiglu",
       {{"num_experts", "4"},
        {"num_experts_per_tok", "2"},
        {"gated_linear_unit", "false"},
        {"router_scoring", R"("softmax_of_chosen")"}}},
      {experts + "--moe-router-pre-softmax",
       "--moe-router-pre-softmax: without --qk-layernorm",
       {{"router_scoring", R"("softmax")"}, {"norm_topk_prob", "false"}}},
      {experts + "--moe-router-score-function sigmoid --moe-router-enable-expert-bias",
       "--moe-router-score-function: sigmoid without --multi-latent-attention",
       {{"router_scoring", R"("sigmoid")"}, {"norm_topk_prob", "true"}, {"router_selection_bias", "true"}}},
      {experts + "--moe-shared-expert-intermediate-size 24",
       "--moe-shared-expert-intermediate-size: without --moe-shared-expert-gate",
       {{"shared_expert_intermediate_size", "24"}, {"shared_expert_gate", "false"}}},
      {experts + "--add-qkv-bias", "--add-qkv-bias: with experts but no shared expert", {{"add_qkv_bias", "true"}}},
      {experts + "--moe-layer-freq 2",
       "--moe-layer-freq: that skips layers, without --qk-layernorm",
       {{"mlp_only_layers", "[1,3]"}}},
      {experts + "--moe-router-num-groups 2 --moe-router-group-topk 1 --moe-router-topk-scaling-factor 2.5",
       "--moe-router-num-groups: without --multi-latent-attention",
       {{"n_group", "2"}, {"topk_group", "1"}, {"routed_scaling_factor", "2.5"}}},
      {experts + "--moe-router-load-balancing-type sinkhorn --moe-router-topk 1",
       "--moe-router-load-balancing-type: sinkhorn",
       {{"router_balancing", R"("sinkhorn")"}, {"router_scoring", R"("sigmoid")"}, {"norm_topk_prob", "false"}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.line);
    const Value config = model_of(c.line);
    EXPECT_EQ(config.at("model_type").as_string(), "megatron_gpt");
    for (const auto& [key, value] : c.members) EXPECT_EQ(dump_json(config.at(key), -1), value) << key;
    EXPECT_EQ(read_line(c.line).notes,
              Words{concat(c.note,
                           ": no family in transformers matches: the model is built as Megatron's own (model_type "
                           "megatron_gpt), which only Tessera reads")});
  }
}

TEST(MegatronModel, UnevenStages) {
  const auto layout = [](const std::string& line) {
    const Read read = read_line("--num-layers 14 --hidden-size 64 --num-attention-heads 4 " + line);
    return read.problems.empty() ? read.settings.at("pipeline_layout") : join(read.problems, "; ");
  };
  EXPECT_EQ(layout("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3 "
                   "--decoder-last-pipeline-num-layers 1"),
            "Et*3|t*5|t*5|tL");
  EXPECT_EQ(layout("--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 4"), "Et*10|t*4L");
  EXPECT_EQ(layout("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
                   "--decoder-first-pipeline-num-layers 8"),
            "Et*4|t*3|t*4|t*3L");
  EXPECT_EQ(layout("--pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 3"),
            "--decoder-first-pipeline-num-layers leaves 11 of the 14 layers to 2 other processes of the pipeline, "
            "which cannot share them evenly");
  EXPECT_EQ(layout("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
                   "--decoder-first-pipeline-num-layers 5"),
            "--decoder-first-pipeline-num-layers gives process 0 of the pipeline 5 layers, which its 2 stages cannot "
            "share evenly");
}

}  // namespace
}  // namespace tessera::config
