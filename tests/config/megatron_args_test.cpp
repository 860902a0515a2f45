// Megatron's arguments as flags of tessera train.
// Long because: it has a line for every argument.

#include "accelerate_under_test.h"

#include <rapidcheck/gtest.h>
#include <tessera/base/file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/megatron/megatron_reading.h>

#include <set>

namespace tessera::config {
namespace {

using testing::Read;
using testing::Words;

const GetEnvironment nothing = [](const std::string&) { return std::nullopt; };

Words words(const std::string& line) {
  Words out;
  for (const std::string& word : split(line, ' '))
    if (!word.empty()) out.push_back(word);
  return out;
}

Words texts(const std::vector<FileWord>& words) {
  Words out;
  for (const FileWord& word : words) out.push_back(word.text);
  return out;
}

Read read(const std::string& line, Words* rest = nullptr, const GetEnvironment& environment = nothing) {
  Problems problems;
  std::vector<FileWord> arguments = typed_words(words(line));
  const Translation translation = read_megatron_flags(arguments, problems, environment);
  if (rest != nullptr) *rest = texts(arguments);
  return testing::read_of(translation, problems);
}

/// Settings without the two that Megatron's defaults would add: explicit flags replace them.
std::string settings(const std::string& line) {
  Read result = read(line + " --weight-decay 0 --seed 1");
  EXPECT_EQ(result.problems, Words{}) << line;
  return result.settings_text();
}

constexpr const char* shape = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 ";
const std::string pipeline = "--pipeline-model-parallel-size 2 ";
constexpr const char* llama =
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope "
    "--disable-bias-linear --hidden-dropout 0 --attention-dropout 0.0 ";

TEST(MegatronArgs, OnlyWhenTheyAreMegatrons) {
  Problems problems;
  for (const char* line : {"", "--learning_rate 1 --bf16", "--lr 1e-4", "--optimizer adam", "train.json",
                           "--data_path a.json --seq_length 64 --micro_batch_size 2 --clip_grad 1",
                           "--hidden_size 64 --save_interval 5", "--train-iters 5 --model_name_or_path m",
                           "--lr-decay-style cosine --learning_rate 1", "--num_train_epochs 1 --train_iters 5"}) {
    std::vector<FileWord> arguments = typed_words(words(line));
    EXPECT_FALSE(is_megatron_style(arguments)) << line;
    EXPECT_FALSE(translate_megatron_flags(arguments, problems).has_value());
    EXPECT_EQ(texts(arguments), words(line));
  }
  EXPECT_TRUE(is_megatron_style(typed_words({"--tensor-model-parallel-size=2", "--num-layers", "2"})));
  EXPECT_FALSE(is_megatron_style(typed_words({"--tensor-model-parallel-size=2", "--bf16"})));  // also one of our names
  EXPECT_TRUE(is_megatron_style(typed_words({"--train_iters", "5"})));
  EXPECT_EQ(problems.lines, Words{});
}

TEST(MegatronArgs, WhatBothHaveStays) {
  Words rest;
  const Read result =
      read("--train-iters 5 --bf16 --seed 3 --weight-decay 0.1 --adam-beta1 0.9 --output_dir o --unknown 4 --lr=1e-4",
           &rest);
  EXPECT_EQ(rest, words("--bf16 --seed 3 --weight-decay 0.1 --adam-beta1 0.9 --output_dir o --unknown 4"));
  EXPECT_EQ(result.settings_text(), "learning_rate=1e-4 max_steps=5");
  EXPECT_EQ(read("--train-iters 5").settings_text(), "max_steps=5 seed=1234 weight_decay=0.01");
}

TEST(MegatronArgs, BecomeSettings) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--train-iters 100 --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-iters 10",
       "learning_rate=3e-4 lr_scheduler_kwargs=min_lr=3e-05 lr_scheduler_type=cosine_with_min_lr max_steps=100 "
       "warmup_steps=10"},
      {"--lr-decay-style cosine --lr-warmup-fraction 0.1", "lr_scheduler_type=cosine warmup_ratio=0.1"},
      {"--lr-decay-style linear --min-lr 1e-5",
       "lr_scheduler_kwargs=power=1,lr_end=1e-05 lr_scheduler_type=polynomial"},
      {"--lr-decay-style linear", "lr_scheduler_type=linear"},
      {"--train-iters 5 --min-lr 0", "lr_scheduler_type=linear max_steps=5"},
      {"--lr-decay-style constant", "lr_scheduler_type=constant_with_warmup"},
      {"--lr-decay-style inverse-square-root", "lr_scheduler_type=inverse_sqrt"},
      {"--train-iters 10 --lr-decay-iters 10", "max_steps=10"},
      {"--train-iters 10 --lr-decay-iters 20 --lr-decay-style cosine --min-lr 1e-5 --lr-warmup-fraction .1",
       "lr_scheduler_kwargs=min_lr=1e-05,num_training_steps=20 lr_scheduler_type=cosine_with_min_lr max_steps=10 "
       "warmup_steps=2"},
      {"--train-samples 40 --lr-decay-samples 80 --global-batch-size 4 --micro-batch-size 4",
       "gradient_accumulation_steps=1 lr_scheduler_kwargs=num_training_steps=20 lr_scheduler_type=linear max_steps=10 "
       "per_device_train_batch_size=4"},
      {"--train-iters 10 --exit-interval 4 --lr-decay-style cosine --lr-warmup-fraction .2",
       "lr_scheduler_kwargs=num_training_steps=10 lr_scheduler_type=cosine max_steps=4 warmup_steps=2"},
      {"--train-iters 10 --exit-interval 20", "max_steps=10"},
      {"--train-iters 10 --eval-micro-batch-size 2 --start-eval-at-iter 5",
       "eval_delay=5 max_steps=10 per_device_eval_batch_size=2"},
      {"--distributed-backend nccl", "device=auto"},
      {"--grad-reduce-in-bf16 --deterministic-mode", "full_determinism=true reduce_dtype=bf16"},
      {"--micro-batch-size 2 --global-batch-size 16 --num_processes 4",
       "gradient_accumulation_steps=2 per_device_train_batch_size=2"},
      {"--micro-batch-size 2 --global-batch-size 16", "gradient_accumulation_steps=8 per_device_train_batch_size=2"},
      {"--micro-batch-size 2 --global-batch-size 4 --train-samples 100 --lr-warmup-samples 8",
       "gradient_accumulation_steps=2 max_steps=25 per_device_train_batch_size=2 warmup_steps=2"},
      {"--micro-batch-size 4 --global-batch-size 16 --rampup-batch-size 4 4 24 --train-samples 96 --lr-warmup-samples "
       "12",
       "batch_size_schedule=4,4,24 gradient_accumulation_steps=4 max_steps=8 per_device_train_batch_size=4 "
       "warmup_steps=2"},
      {"--micro-batch-size 2 --step-batch-size-schedule 0:4,256:8 1K:16 --seq-length 32 --num_processes 2 "
       "--train-samples 136",
       "batch_size_schedule=0:4 8:8 31:16 block_size=32 gradient_accumulation_steps=4 max_steps=11 "
       "per_device_train_batch_size=2"},
      {"--seq-length 128", "block_size=128"},
      {"--train-iters 5 --optimizer lion", "max_steps=5 optim=lion optim_args=beta1=0.95,beta2=0.98"},
      {"--train-iters 5 --optimizer lion --lion-beta1 .9", "max_steps=5 optim=lion optim_args=beta1=0.9,beta2=0.98"},
      {"--train-iters 5 --optimizer muon",
       "max_steps=5 optim=muon optim_args=momentum=0.9,nesterov=false,ns_coefficients=quintic,ns_steps=5,"
       "scale_mode=spectral,extra_scale_factor=1,ns_eps=1e-15"},
      {"--train-iters 5 --optimizer dist_muon --muon-momentum 0.95 --muon-nesterov --muon-coefficient-type simple "
       "--muon-num-ns-steps 3 --muon-scale-mode shape_scaling --muon-extra-scale-factor .2 --muon-scalar-optimizer "
       "adam",
       "max_steps=5 optim=muon optim_args=momentum=0.95,nesterov=true,ns_coefficients=simple,ns_steps=3,"
       "scale_mode=shape_scaling,extra_scale_factor=0.2,ns_eps=1e-15"},
      {"--clip-grad 0.5 --adam-eps 1e-8 --optimizer adam", "adam_epsilon=1e-8 max_grad_norm=0.5 optim=adamw"},
      {"--clip-grad 0.5 --sgd-momentum 0.9 --optimizer sgd", "max_grad_norm=0.5 momentum=0.9 optim=sgd"},
      {"--use-distributed-optimizer --overlap-grad-reduce", "overlap_comm=true strategy=zero1"},
      {"--use-megatron-fsdp --use-distributed-optimizer --data-parallel-sharding-strategy optim_grads",
       "strategy=zero2"},
      {"--use-torch-fsdp2 --use-distributed-optimizer", "strategy=full_shard"},
      {"--use-custom-fsdp --train-iters 1 --data-parallel-sharding-strategy no_shard", "max_steps=1 strategy=ddp"},
      {"--recompute-activations", "gradient_checkpointing=true gradient_checkpointing_kwargs=part=attention"},
      {"--recompute-granularity full", "gradient_checkpointing=true"},
      {"--recompute-granularity selective", "gradient_checkpointing=true gradient_checkpointing_kwargs=part=attention"},
      {"--train-iters 5 --optimizer-cpu-offload --no-save-optim --calculate-per-token-loss",
       "average_tokens_across_devices=true cpu_offload=optimizer max_steps=5 save_only_model=true"},
      {"--train-iters 5 --use-dist-ckpt --ckpt-fully-parallel-save --non-persistent-ckpt-type in_memory "
       "--non-persistent-save-interval 10",
       "checkpoint_in_memory=10 max_steps=5 save_state_dict_type=sharded"},
      {"--train-iters 5 --check-weight-hash-across-dp-replicas-interval 20 --check-for-nan-in-loss-and-grad",
       "check_replicas_steps=20 max_steps=5 nan_policy=stop"},
      {"--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --context-parallel-size 1", ""},
      {"--train-iters 5 --tensor-model-parallel-size 2 --context-parallel-size 4", "cp_size=4 max_steps=5 tp_size=2"},
      {"--context-parallel-size 8 --hierarchical-context-parallel-sizes 2 4", "cp_a2a_size=2 cp_size=8"},
      {"--pipeline-model-parallel-size 2", "pp_size=2"},
      {pipeline + "--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 4",
       "pipeline_group_size=4 pipeline_schedule=interleaved_1f1b pipeline_stages_per_rank=2 pp_size=2"},
      {pipeline + "--num-virtual-stages-per-pipeline-rank 1", "pp_size=2"},
      {pipeline + "--pipeline-model-parallel-layout Et*3|(tt|)*2tL",
       "pipeline_layout=Et*3|(tt|)*2tL pipeline_schedule=interleaved_1f1b pipeline_stages_per_rank=2 pp_size=2"},
      {pipeline + "--pipeline-model-parallel-layout Et*3|tL", "pipeline_layout=Et*3|tL pp_size=2"},
      {pipeline + "--pipeline-model-parallel-layout Et*3|tmL", "pipeline_layout=Et*3|tmL pp_size=2"},
      {pipeline + "--pipeline-model-parallel-layout Et*2|t|m|L",
       "pipeline_layout=Ett|t||mL pipeline_schedule=interleaved_1f1b pipeline_stages_per_rank=2 pp_size=2"},
      {"--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 16 "
       "--num_processes 8",
       "gradient_accumulation_steps=4 per_device_train_batch_size=2 pp_size=2 tp_size=2"},
      {"--tensor-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 16 --num_processes 8",
       "gradient_accumulation_steps=2 per_device_train_batch_size=2 tp_size=2"},
      {"--train-iters 10 --use-distributed-optimizer --num-distributed-optimizer-instances 2 --num_processes 16 "
       "--tensor-model-parallel-size 2",
       "max_steps=10 shard_group_size=4 strategy=zero1 tp_size=2"},
      {"--train-samples 40 --lr-decay-samples 80 --micro-batch-size 2 --num_processes 2",
       "lr_scheduler_kwargs=num_training_steps=20 lr_scheduler_type=linear max_steps=10 per_device_train_batch_size=2"},
      {"--train-iters 5 --distributed-backend gloo --distributed-timeout-minutes 2 --ddp-bucket-size 1000",
       "backend=gloo ddp_timeout=120 max_steps=5 reduce_bucket_size=1000"},
      {"--train-iters 5 --moe-expert-capacity-factor 1.5", "max_steps=5 moe_capacity_factor=1.5"},
      {"--train-iters 5 --initial-loss-scale 65536", "initial_scale_power=16 max_steps=5"},
      {"--data-path corpus_text_document", "train_file=corpus_text_document.bin"},
      {"--data-path a.txt --valid-data-path b", "train_file=a.txt validation_file=b.bin"},
      {"--data-path 0.3 a 0.7 b.bin", "train_file=0.3 a.bin 0.7 b.bin"},
      {"--data-path a b", "train_file=a.bin b.bin"},
      {"--data-path a --split 90,10", "train_file=a.bin validation_split_percentage=10"},
      {"--save out --save-interval 50 --eval-interval 25 --log-interval 5 --tensorboard-dir tb --wandb-exp-name me",
       "eval_steps=25 eval_strategy=steps logging_dir=tb logging_steps=5 output_dir=out run_name=me save_steps=50"},
      {"--eval-interval 25 --split 99,1,0 --eval-iters 10",
       "eval_steps=25 eval_strategy=steps "
       "validation_split_percentage=1"},
      {"--eval-interval 25 --eval-iters 0", ""},
      {"--train-iters 5 --recompute-granularity full --fine-grained-activation-offloading",
       "gradient_checkpointing=true gradient_checkpointing_kwargs=offload_inputs_to=host max_steps=5"},
      {"--train-iters 5 --recompute-granularity selective --fine-grained-activation-offloading --offload-modules [a]",
       "gradient_checkpointing=true gradient_checkpointing_kwargs=part=attention,offload_inputs_to=host max_steps=5"},
      {"--eval-interval 25 --split 1,0,0", "validation_split_percentage=0"},
      {"--eval-interval 25 --split 100 --valid-data-path v",
       "eval_steps=25 eval_strategy=steps validation_file=v.bin validation_split_percentage=0"},
      {"--train-iters 5 --use-megatron-fsdp --outer-dp-sharding-strategy no_shard --num_processes 4 "
       "--num-distributed-optimizer-instances 2",
       "max_steps=5 shard_group_size=2 strategy=full_shard"},
      {"--train-iters 5 --use-megatron-fsdp --outer-dp-sharding-strategy optim", "max_steps=5 strategy=full_shard"},
      {"--lr 1e-3 --lr-warmup-init 1e-7 --lr-warmup-iters 4",
       "learning_rate=1e-3 lr_scheduler_kwargs=warmup_init_lr=1e-07 lr_scheduler_type=linear warmup_steps=4"},
      {"--lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --lr-warmup-init 1e-7 --lr-decay-iters 20",
       "learning_rate=1e-3 lr_scheduler_kwargs=min_lr=1e-04,num_training_steps=20,warmup_init_lr=1e-07 "
       "lr_scheduler_type=cosine_with_min_lr"},
      {"--lr 1e-3 --lr-decay-style constant --lr-warmup-init 1e-7",
       "learning_rate=1e-3 lr_scheduler_kwargs=warmup_init_lr=1e-07 lr_scheduler_type=constant_with_warmup"},
      {"--lr 1e-3 --lr-decay-style constant --lr-warmup-init 0",
       "learning_rate=1e-3 lr_scheduler_type=constant_with_warmup"},
      {"--save-interval 5 --load not_there --save new", "output_dir=new save_steps=5"},
      {"--train-iters 5 --tokenizer-type HuggingFaceTokenizer --tokenizer-model dir", "max_steps=5 tokenizer_name=dir"},
      {concat(shape, "--seq-length 32 --max-position-embeddings 64 --vocab-size 100"),
       "block_size=32 config_name=gpt2 "
       "config_overrides=n_layer=2,n_embd=64,n_head=4,n_positions=64,vocab_size=100,bos_token_id=99,eos_token_id=99,"
       "tie_word_embeddings=true,activation_function=gelu_new"},
      {concat(
           shape,
           "--ffn-hidden-size 96 --attention-dropout 0 --hidden-dropout 0.2 --norm-epsilon 1e-6 --init-method-std 0.01 "
           "--untie-embeddings-and-output-weights"),
       "config_name=gpt2 "
       "config_overrides=n_layer=2,n_embd=64,n_head=4,n_inner=96,layer_norm_epsilon=1e-06,initializer_range=0.01,tie_"
       "word_embeddings=false,activation_function=gelu_new,"
       "attn_pdrop=0,resid_pdrop=0.2,embd_pdrop=0.2"},
      {concat(llama, "--group-query-attention --num-query-groups 2 --max-position-embeddings 128 --rotary-base 500000"),
       "config_name=llama-tiny "
       "config_overrides=num_hidden_layers=2,hidden_size=64,num_attention_heads=4,max_position_embeddings=128,tie_word_"
       "embeddings=true,"
       "intermediate_size=128,rms_norm_eps=1e-05,num_key_value_heads=2,head_dim=16,rope_theta=5e+05,attention_dropout="
       "0"},
  };
  for (const auto& [line, expected] : cases) EXPECT_EQ(settings(line), expected) << line;
}

TEST(MegatronArgs, TheWorldsSizeDividesTheBatch) {
  const auto world = [](const std::string& name) {
    return name == "WORLD_SIZE" ? std::optional<std::string>("8") : std::nullopt;
  };
  EXPECT_EQ(
      read("--micro-batch-size 1 --global-batch-size 16 --seed 1 --weight-decay 0", nullptr, world).settings_text(),
      "gradient_accumulation_steps=2 per_device_train_batch_size=1");
}

TEST(MegatronArgs, Mistakes) {
  const std::vector<std::pair<std::string, Words>> cases = {
      {"--train-iters 5 --hierarchical-context-parallel-sizes 2 4 --context-parallel-size 4",
       {"--hierarchical-context-parallel-sizes 2 4: expected two sizes of at least 2 whose product is "
        "--context-parallel-size 4, such as 2 4 for 8"}},
      {"--micro-batch-size 3 --global-batch-size 16 --num_processes 8 --tensor-model-parallel-size 4",
       {"--global-batch-size 16 is not a multiple of --micro-batch-size 3 x 2 data-parallel processes = 6"}},
      {"--pipeline-model-parallel-size=4 --expert-tensor-parallel-size 0",
       {"--expert-tensor-parallel-size is '0'; it must be a whole number from 1"}},
      {"--pipeline-model-parallel-size 0", {"--pipeline-model-parallel-size is '0'; it must be a whole number from 1"}},
      {pipeline + "--decoder-first-pipeline-num-layers 3 --standalone-embedding-stage",
       {"--standalone-embedding-stage is not supported with several stages: define their layers with "
        "--pipeline-model-parallel-layout",
        "--decoder-first-pipeline-num-layers needs --num-layers; --pipeline-model-parallel-layout does not"}},
      {pipeline + "--decoder-first-pipeline-num-layers 3 --account-for-loss-in-pipeline-split",
       {"--decoder-first-pipeline-num-layers and --account-for-loss-in-pipeline-split both define where the model is "
        "cut: use only one of them"}},
      {pipeline + "--num-layers-per-virtual-pipeline-stage 2",
       {"--num-layers-per-virtual-pipeline-stage 2 needs --num-layers; --num-virtual-stages-per-pipeline-rank does "
        "not"}},
      {pipeline + "--hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64 --vocab-size 100 --num-layers "
                  "8 --num-layers-per-virtual-pipeline-stage 3",
       {"--num-layers-per-virtual-pipeline-stage 3 does not divide the 8 layers / 2 processes of the pipeline = 4; "
        "--pipeline-model-parallel-layout can cut anywhere"}},
      {pipeline + "--pipeline-model-parallel-layout Et|t|L",
       {"--pipeline-model-parallel-layout Et|t|L has 3 stages, which the 2 processes of the pipeline cannot share "
        "evenly"}},
      {pipeline + "--pipeline-model-parallel-layout Etm|tL",
       {"--pipeline-model-parallel-layout is wrong: pipeline layout 'Etm|tL', column 3: m, a depth of multi-token "
        "prediction, needs the last norm and the head, so it belongs to the last stage with L, after all blocks; the "
        "nearest layout is Et|tmL"}},
      {pipeline + "--pipeline-model-parallel-layout Et|tL --num-virtual-stages-per-pipeline-rank 2",
       {"--pipeline-model-parallel-layout and --num-virtual-stages-per-pipeline-rank set the same value: use only one "
        "of them"}},
      {pipeline + "--pipeline-model-parallel-layout Et|tL --account-for-loss-in-pipeline-split",
       {"--account-for-loss-in-pipeline-split is given with --pipeline-model-parallel-layout, which already defines "
        "all stages: remove it"}},
      {pipeline + "--account-for-embedding-in-pipeline-split",
       {"--account-for-embedding-in-pipeline-split needs --num-layers; --pipeline-model-parallel-layout does not"}},
      {"--train-iters 5 --num-experts 8", {"--num-experts describes a model without --num-layers: add it"}},
      {"--train-iters five", {"--train-iters is 'five'; it must be an integer"}},
      {"--train-iters", {"--train-iters needs a value"}},
      {"--train-iters 5 6", {"--train-iters must have one value, not 5 6"}},
      {"--micro-batch-size 3 --global-batch-size 16 --num_processes 2",
       {"--global-batch-size 16 is not a multiple of --micro-batch-size 3 x 2 processes = 6"}},
      {"--global-batch-size 16", {"--global-batch-size 16 needs --micro-batch-size"}},
      {"--train-samples 16", {"--train-samples 16 needs --micro-batch-size"}},
      {"--lr-decay-style cosin",
       {"--lr-decay-style is 'cosin'; it must be one of constant, linear, cosine, inverse-square-root, wsd (did you "
        "mean "
        "cosine?)"}},
      {"--lr-decay-style inverse-square-root --min-lr 1",
       {"--min-lr 1 is not supported by --lr-decay-style inverse-square-root: remove it"}},
      {"--recompute-granularity full --recompute-activations",
       {"--recompute-activations recomputes only attention, but --recompute-granularity full recomputes whole "
        "blocks: keep one of them"}},
      {"--train-iters 5 --data-parallel-sharding-strategy optim",
       {"--data-parallel-sharding-strategy optim needs --use-megatron-fsdp"}},
      {"--use-megatron-fsdp --outer-dp-sharding-strategy optim --num-distributed-optimizer-instances 2 "
       "--num_processes 4",
       {"--outer-dp-sharding-strategy optim is not supported: the optimizer's states are sharded within each of the 2 "
        "replicas of the shards, not over them; remove it, or shard one replica over all processes "
        "(--num-distributed-optimizer-instances 1)"}},
      {"--train-iters 5 --fine-grained-activation-offloading",
       {"--fine-grained-activation-offloading needs --recompute-granularity: only the inputs kept to recompute blocks, "
        "or their attention, are moved to the host; use --recompute-granularity full or selective, or remove it"}},
      {"--train-iters 5 --lr 1e-5 --lr-warmup-init 1e-4",
       {"--lr-warmup-init 1e-04 is more than --lr 1e-05: the warm-up would decrease the rate"}},
      {"--train-iters 5 --lr 1e-5 --lr-warmup-init 1e-6 --decoupled-lr 1e-4",
       {"--lr-warmup-init 1e-06 with --decoupled-lr needs --decoupled-min-lr: without it both rates rise in "
        "proportion instead of starting from the same value"}},
      {"--data-path a --split 90,x",
       {"--split 90,x: expected the shares of training, validation and test, such as 949,50,1"}},
      {"--train-iters 5 --split 0,0", {"--split 0,0: the shares are all 0"}},
      {"--train-iters 5 --eod-mask-loss",
       {"--eod-mask-loss needs --reset-position-ids, which separates the documents of a block: without it all tokens "
        "are scored; add it, or remove this one"}},
      {"--train-iters 5 --use-rotary-position-embeddings --rotary-percent 0.5 --config_name llama",
       {"--use-rotary-position-embeddings describes the model, which --config_name or --model_name_or_path already "
        "does: keep one of them"}},
      {"--train-iters 5 --no-position-embedding",
       {"--no-position-embedding needs --position-embedding-type rope: without it positions are learned"}},
      {"--use-distributed-optimizer --num-distributed-optimizer-instances 3 --num_processes 8",
       {"--num-distributed-optimizer-instances 3 does not divide the 8 processes that would share the optimizer's "
        "states"}},
      {"--train-iters 5 --step-batch-size-schedule 1",
       {"--step-batch-size-schedule 1: expected TOKENS:ROWS TOKENS:ROWS ..., starting at 0 and both increasing, such "
        "as 0:384 200B:768, with --seq-length"}},
      {"--step-batch-size-schedule 0:4 --seq-length 8 --train-iters 5 --global-batch-size 4 --micro-batch-size 4",
       {"--step-batch-size-schedule and --global-batch-size exclude each other: use only one of them"}},
      {"--step-batch-size-schedule 0:4,7:6 --seq-length 8 --micro-batch-size 1 --train-iters 5",
       {"--step-batch-size-schedule 0:4,7:6: expected TOKENS:ROWS TOKENS:ROWS ..., starting at 0 and both increasing, "
        "such as 0:384 200B:768, with --seq-length"}},
      {"--train-iters 5 --initial-loss-scale 1000",
       {"--initial-loss-scale 1000: the scale must be a power of two, such as 65536"}},
      {"--train-iters 5 --non-persistent-ckpt-type local",
       {"--non-persistent-ckpt-type local is not supported: copies between checkpoints are kept in memory; use "
        "in_memory"}},
      {"--train-iters 5 --optimizer adamw",
       {"--optimizer is 'adamw'; it must be one of adam, sgd, lion, muon, dist_muon (did you mean adam?)"}},
      {"--train-iters 5 --optimizer muon --muon-scalar-optimizer lion",
       {"--muon-scalar-optimizer lion is not implemented: vectors and embeddings follow adam"}},
      {"--train-iters 5 --optimizer muon --muon-no-split-qkv",
       {"--muon-no-split-qkv is not supported: queries, keys and values are separate matrices, as with muon_split_qkv; "
        "remove it"}},
      {"--train-iters 5 --optimizer muon --muon-coefficient-type aol",
       {"--muon-coefficient-type is 'aol'; it must be one of quintic, simple"}},
      {"--num-layers 2 --hidden-size 64", {"--num-layers describes a model without --num-attention-heads: add it"}},
      {concat(shape, "--config_name gpt2"),
       {"--num-layers describes the model, which --config_name or --model_name_or_path already does: keep one of "
        "them"}},
      {concat(shape, "--config_overrides n_layer=2"),
       {"--num-layers describes the model, which --config_overrides already does: keep one of them"}},
      {concat(shape, "--position-embedding-type rope --rotary-percent 1.5"),
       {"--rotary-percent 1.5: it must be above 0 and at most 1"}},
      {concat(shape, "--swiglu --squared-relu"), {"--squared-relu contradicts --swiglu: keep one of them"}},
      {concat(shape, "--position-embedding-type rope --num-query-groups 2"),
       {"--num-query-groups 2 needs --group-query-attention"}},
      {concat(llama, "--num-query-groups 2"), {"--num-query-groups 2 needs --group-query-attention"}},
      {concat(shape, "--hidden-dropout 2x"), {"--hidden-dropout is '2x'; it must be a number from 0"}},
  };
  for (const auto& [line, problems] : cases) EXPECT_EQ(read(line).problems, problems) << line;
}

TEST(MegatronArgs, NamesOfEveryFamilyAreKnown) {
  EXPECT_EQ(read("--log-num-zeros-in-grad --log-memory-to-tensorboard --use-persistent-ckpt-worker "
                 "--dist-ckpt-strictness log_unexpected --use-checkpoint-opt_param-scheduler "
                 "--dist-ckpt-optim-fully-reshardable --no-load-rng")
                .problems,
            Words{});
  EXPECT_EQ(read("--moe-router-topk 2").notes,
            Words{"--moe-router-topk: has no effect: it is for mixtures of experts (--num-experts)"});
  EXPECT_EQ(read("--multi-latent-attention").problems.size(), 1u);
  EXPECT_EQ(find_megatron_key("moonlight"), nullptr);
}

TEST(MegatronArgs, Fp16HasItsOwnDefaults) {
  EXPECT_EQ(settings("--fp16 --train-iters 5"),
            "hysteresis=2 initial_scale_power=32 loss_scale_window=1000 max_steps=5");
  EXPECT_EQ(settings("--fp16 --initial-loss-scale 8 --hysteresis 1"), "initial_scale_power=3 loss_scale_window=1000");
}

TEST(MegatronArgs, Notes) {
  const Read twice = read("--train-iters 5 --train-iters 6");
  EXPECT_EQ(twice.notes, Words{"--train-iters: is given twice: 6 is used, not 5"});
  EXPECT_EQ(twice.settings.at("max_steps"), "6");
  EXPECT_EQ(read("--train-iters 5 --transformer-impl local --sequence-parallel").notes,
            (Words{"--transformer-impl: has no effect: the machine's fastest kernels are chosen",
                   "--sequence-parallel: has no effect: it is for tensor parallelism, whose size is 1"}));
  EXPECT_EQ(read("--data-path a --split 949,50,1").notes,
            Words{"--split: 949,50,1: no test follows the training; the share of the test is used for training"});
  EXPECT_EQ(read("--train-iters 5 --tokenizer-type GPT2BPETokenizer").notes,
            Words{"--tokenizer-type: GPT2BPETokenizer has no effect without --tokenizer-model: .bin files need no "
                  "tokenizer, and text is read as bytes"});
}

TEST(MegatronArgs, AFileHasTwentyProblemsTold) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "model_config.yaml");
  std::string misnamed = "MODEL_ARGS:\n", refused = misnamed;
  for (int i = 0; i < 40; ++i) misnamed += concat("  seed", i, ": 5\n");
  std::size_t rows = 0;
  for (const KeyRow& row : megatron_keys())
    if (row.effect == Effect::refused && !row.key.ends_with('*')) refused += concat("  --", row.key, ": 1\n"), ++rows;
  ASSERT_GT(rows, 30u);
  for (const std::string& text : {misnamed, refused}) {
    write_file_atomically(path, text);
    Problems problems;
    std::vector<FileWord> arguments = typed_words({path});
    translate_megatron_flags(arguments, problems, nothing);
    EXPECT_EQ(problems.lines.size(), 21u);
    EXPECT_TRUE(problems.lines.back().ends_with("were not checked")) << problems.lines.back();
  }
}

TEST(MegatronArgs, LoadingWhatWasSaved) {
  const TemporaryFolder folder;
  const std::string both = concat("--train-iters 5 --load ", folder.path(), " --save ", folder.path());
  EXPECT_EQ(read(both).notes,
            Words{concat("--load: ", folder.path(), " contains no checkpoint: the run starts from scratch")});
  write_file_atomically(path_join(folder.path(), "latest_checkpointed_iteration.txt"), "5");
  EXPECT_EQ(read(both).problems,
            Words{concat("--load ", folder.path(),
                         " contains checkpoints in Megatron's format, which cannot be read: convert them to a Hugging "
                         "Face folder and pass it as --model_name_or_path")});
  const std::string checkpoint = path_join(folder.path(), "checkpoint-5");
  make_folders(checkpoint);
  remove_tree(path_join(folder.path(), "latest_checkpointed_iteration.txt"));
  EXPECT_EQ(read(both).settings["resume_from_checkpoint"], "last");
  const std::string elsewhere = concat("--train-iters 5 --save out --load ", folder.path());
  EXPECT_EQ(
      read(elsewhere).problems,
      Words{concat("--load ", folder.path(), " is not the folder of --save: specify a checkpoint-N folder inside it")});
  write_file_atomically(path_join(checkpoint, "manifest.json"), "{}");
  EXPECT_EQ(read(elsewhere + "/checkpoint-5").settings["resume_from_checkpoint"], checkpoint);
  EXPECT_EQ(read("--train-iters 5 --load not_there --exit-on-missing-checkpoint").problems,
            Words{"--load not_there contains no checkpoint: remove it"});
}

bool stands_alone(std::string_view name) {
  const MegatronRow* row = find_megatron_row(name);
  return row != nullptr && (row->act == MegatronRow::Act::standing || row->act == MegatronRow::Act::constant);
}

// Every row: removed from the arguments unless the name is also ours; it acts, is ignored with a note, or is refused.
TEST(MegatronArgs, EveryRow) {
  const TemporaryFolder folder;
  make_folders(path_join(folder.path(), "checkpoint-5"));
  const std::string loaded = concat("--load ", folder.path(), " --save ", folder.path());
  const std::string experts = concat("--num-experts 4 ", llama);
  const std::string deepseek = concat(
      "--num-experts 4 --multi-latent-attention --qk-layernorm --moe-router-score-function sigmoid "
      "--moe-ffn-hidden-size 8 --moe-shared-expert-intermediate-size 8 ",
      llama);
  const std::string linear = concat(" --experimental-attention-variant gated_delta_net ", llama);
  const std::map<std::string_view, std::string> values = {
      {"distributed_backend", "gloo"},
      {"expert_tensor_parallel_size", "2"},
      {"weight_decay_incr_style", "constant"},
      {"lr_decay_samples", "16 --global-batch-size 4 --micro-batch-size 2"},
      {"no_load_optim", loaded},
      {"finetune", loaded},
      {"no_position_embedding", llama},
      {"num_distributed_optimizer_instances", "2 --use-distributed-optimizer --num_processes 4"},
      {"decoder_first_pipeline_num_layers", concat("1 ", pipeline, shape)},
      {"decoder_last_pipeline_num_layers", concat("1 ", pipeline, shape)},
      {"expert_model_parallel_size", "2"},
      {"qk_layernorm", llama},
      {"add_qkv_bias", llama},
      {"multi_latent_attention", deepseek},
      {"num_experts", concat("8 ", llama)},
      {"experimental_attention_variant", concat("gated_delta_net ", llama)},
      {"linear_attention_freq", concat("2", linear)},
      {"linear_conv_kernel_dim", concat("2", linear)},
      {"linear_key_head_dim", concat("2", linear)},
      {"linear_value_head_dim", concat("2", linear)},
      {"linear_num_key_heads", concat("2", linear)},
      {"linear_num_value_heads", concat("2", linear)},
      {"attention_output_gate", llama},
      {"mtp_num_layers", concat("1 ", llama)},
      {"moe_router_pre_softmax", concat("--qk-layernorm ", experts)},
      {"moe_router_score_function", concat("softmax ", experts)},
      {"moe_shared_expert_intermediate_size", concat("8 --moe-shared-expert-gate ", experts)},
      {"moe_shared_expert_gate", concat("--moe-shared-expert-intermediate-size 8 ", experts)},
      {"moe_router_load_balancing_type", concat("seq_aux_loss --moe-aux-loss-coeff 0.1 ", experts)},
      {"moe_router_bias_update_rate", concat("0.1 --moe-router-enable-expert-bias ", deepseek)},
      {"moe_router_enable_expert_bias", deepseek},
      {"data_parallel_sharding_strategy", "optim --use-megatron-fsdp"},
      {"recompute_granularity", "full"},
      {"fine_grained_activation_offloading", "--recompute-granularity selective"},
      {"position_embedding_type", concat("learned_absolute ", shape)},
      {"normalization", concat("LayerNorm ", shape)},
      {"optimizer", "adam"},
      {"lr_decay_style", "cosine"},
      {"tokenizer_type", "NullTokenizer"},
      {"global_batch_size", "4 --micro-batch-size 2"},
      {"rampup_batch_size", "2 2 8 --global-batch-size 4 --micro-batch-size 2"},
      {"train_samples", "8 --global-batch-size 4 --micro-batch-size 2"},
      {"lr_warmup_samples", "8 --global-batch-size 4 --micro-batch-size 2"},
      {"lr_warmup_init", "1e-7"},
      {"outer_dp_sharding_strategy", "no_shard"},
      {"lr_warmup_fraction", "0.5"},
      {"lr_decay_iters", "7 --train-iters 5"},
      {"exit_interval", "3 --train-iters 5"},
      {"split", "90,10"},
      {"initial_loss_scale", "8"},
      {"kv_channels", concat("16 ", shape)},
      {"swiglu", llama},
      {"rotary_percent", concat("0.5 --position-embedding-type rope ", shape)},
      {"no_bias_gelu_fusion", shape},
      {"squared_relu", shape},
      {"apply_layernorm_1p", shape},
      {"disable_bias_linear", llama},
      {"use_rotary_position_embeddings", llama},
      {"num_query_groups", concat("2 --group-query-attention ", llama)},
      {"group_query_attention", llama},
      {"min_lr", "1e-5"},
      {"seq_length", "8"},
      {"sgd_momentum", "0.5"},
      {"tensor_model_parallel_size", "2"},
      {"pipeline_model_parallel_size", "2"},
      {"num_layers_per_virtual_pipeline_stage",
       concat("1 ", pipeline, "--hidden-size 64 --num-attention-heads 4 --num-layers 4")},
      {"num_virtual_stages_per_pipeline_rank", concat("2 ", pipeline)},
      {"pipeline_model_parallel_layout", concat("Et|tL ", pipeline)},
      {"microbatch_group_size_per_virtual_pipeline_stage",
       concat("4 --num-virtual-stages-per-pipeline-rank 2 ", pipeline)},
      {"account_for_embedding_in_pipeline_split", concat(pipeline, shape)},
      {"account_for_loss_in_pipeline_split", concat(pipeline, shape)},
      {"context_parallel_size", "2"},
      {"sequence_parallel", "--tensor-model-parallel-size 2"},
      {"cp_comm_type", "p2p"},
      {"hierarchical_context_parallel_sizes", "2 4 --context-parallel-size 8"},
      {"non_persistent_ckpt_type", "in_memory"},
      {"activations_checkpoint_method", "uniform"},
      {"lr_wsd_decay_style", "linear --lr-decay-style WSD --lr-wsd-decay-iters 2"},
      {"lr_wsd_decay_iters", "2 --lr-decay-style WSD"},
      {"lr_wsd_decay_samples", "2 --lr-decay-style WSD --micro-batch-size 1"},
      {"reset_attention_mask", "--reset-position-ids"},
      {"eod_mask_loss", "--reset-position-ids"},
      {"step_batch_size_schedule", "0:4 --seq-length 8 --micro-batch-size 2"},
      {"lion_beta1", "0.9 --optimizer lion"},
      {"lion_beta2", "0.9 --optimizer lion"},
      {"muon_nesterov", "--optimizer muon"},
      {"muon_momentum", "0.9 --optimizer muon"},
      {"muon_coefficient_type", "simple --optimizer muon"},
      {"muon_num_ns_steps", "4 --optimizer muon"},
      {"muon_scale_mode", "spectral --optimizer muon"},
      {"muon_extra_scale_factor", "0.2 --optimizer muon"}};
  const std::set<std::string_view> shapes = {
      "ffn_hidden_size", "max_position_embeddings", "vocab_size",
      "norm_epsilon",    "layernorm_epsilon",       "attention_dropout",
      "hidden_dropout",  "init_method_std",         "untie_embeddings_and_output_weights",
      "rotary_base"};
  std::set<std::string_view> seen;
  for (const KeyRow& row : megatron_keys()) {
    EXPECT_TRUE(seen.insert(row.key).second) << row.key;
    if (!row.setting.empty()) {
      EXPECT_NE(find_field(row.setting), nullptr) << row.key;
    }
    if (row.key.ends_with('*') || row.key == "num_layers" || row.key == "hidden_size" ||
        row.key == "num_attention_heads")
      continue;  // these require each other; tested above
    std::string value = stands_alone(row.key) ? "" : "1";
    if (shapes.contains(row.key)) value += concat(" ", shape);
    if (row.why.find("for num_experts") != row.why.npos || row.key == "moe_input_jitter_eps" ||
        row.setting.starts_with("router_"))
      value += " " + experts;
    if (row.why.find("DeepSeek-V3's, for") != row.why.npos) value += " " + deepseek;
    if (values.contains(row.key)) value = values.at(row.key);
    std::string line = concat("--", row.key, " ", value);
    if (line.find("--train-iters") == std::string::npos && row.key != "train_iters" &&
        line.find("train_samples") == std::string::npos)
      line += " --train-iters 5";
    Words rest;
    const Read result = read(line, &rest);
    const bool ours = find_field(row.key) != nullptr;
    EXPECT_EQ(std::find(rest.begin(), rest.end(), concat("--", row.key)) != rest.end(), ours) << line;
    if (row.effect == Effect::refused) {
      EXPECT_EQ(result.problems.size(), 1u) << line;
      continue;
    }
    EXPECT_EQ(result.problems, Words{}) << line;
    if (row.effect == Effect::ignored) {
      EXPECT_EQ(result.notes.size(), 1u) << line;
    } else if (!row.setting.empty() && !ours && row.key != "tokenizer_type" && row.key != "load") {
      EXPECT_TRUE(result.settings.contains(std::string(row.setting))) << line << " -> " << result.settings_text();
    }
  }
}

// For any words: no crash, and words that are not Megatron's stay unchanged and in order.
RC_GTEST_PROP(MegatronArgs, AnyWords, ()) {
  const auto one =
      rc::gen::oneOf(rc::gen::elementOf(Words{"--num-layers", "--train-iters", "--lr", "--data-path", "--split",
                                              "--swiglu", "5", "-1", "", "--", "x=y", "--vocab-size=9", "--hidden-size",
                                              "--bf16", "1e400", "--global-batch-size", "--micro-batch-size", "0"}),
                     rc::gen::string<std::string>());
  const auto given = *rc::gen::container<Words>(one);
  std::vector<FileWord> arguments = typed_words(given);
  Problems problems;
  const bool style = is_megatron_style(arguments);
  RC_ASSERT(translate_megatron_flags(arguments, problems, nothing).has_value() == style);
  std::size_t next = 0;
  for (const std::string& word : given)
    if (next < arguments.size() && arguments[next].text == word) ++next;
  RC_ASSERT(next == arguments.size());
}

}  // namespace
}  // namespace tessera::config
