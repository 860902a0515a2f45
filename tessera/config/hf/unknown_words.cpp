#include <tessera/config/hf/unknown_words.h>

#include <tessera/base/text.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

struct OtherProgram {
  std::string_view words;   ///< words that only this program has, separated by blanks
  std::string_view shared;  ///< words that other programs share, too; two of them decide
  std::string_view why;
};
constexpr OtherProgram other_programs[] = {
    {"num_generations reward_funcs reward_weights reward_model_path reward_model_name_or_path use_vllm vllm_mode "
     "vllm_device vllm_server_host vllm_server_port vllm_gpu_memory_utilization vllm_max_model_len scale_rewards "
     "num_ppo_epochs ppo_epochs num_mini_batches kl_coef cliprange cliprange_value vf_coef missing_eos_penalty "
     "response_length sft_model_path epsilon_high actor_rollout_ref rollout_batch_size actor_num_nodes "
     "advantage_estimator num_sample_generations rloo_k",
     "",
     "reinforcement learning (GRPO, PPO, RLOO) is not implemented: use fine-tuning (--train_file) or preferences "
     "(--preference_loss)"},
    {"finetuning_type infer_backend neat_packing pref_loss pref_beta pref_ftx freeze_trainable_layers",
     "dataset_dir stage template",
     "LLaMA-Factory's configurations are not supported: use transformers' and TRL's arguments (model_name_or_path, "
     "train_file, max_seq_length, lora_r, ...; tessera train --help)"},
    {"sequence_len sample_packing dataset_prepared_path lora_target_linear base_model_config eval_sample_packing "
     "chat_template_jinja",
     "",
     "axolotl's configurations are not supported: use transformers' and TRL's arguments (model_name_or_path, "
     "train_file, "
     "max_seq_length, packing, lora_r, ...; tessera train --help)"},
    {"tuner_type train_type template_type model_author custom_train_dataset_path", "sft_type template rlhf_type",
     "ms-swift's arguments are not supported: use transformers' and TRL's (model_name_or_path, train_file, "
     "max_seq_length, "
     "lora_r, ...; tessera train --help)"},
    {"pipe_parallel_size attention_config gpt_j_residual output_layer_parallelism no_weight_tying train_data_paths", "",
     "GPT-NeoX's configurations are not supported: convert its model to a Hugging Face folder (--model_name_or_path); "
     "its zero_optimization is DeepSpeed's (--deepspeed)"},
    {"_component_ metric_logger checkpointer enable_activation_offloading optimizer_in_bwd max_steps_per_epoch", "",
     "torchtune's configurations are not supported: use transformers' and TRL's arguments (model_name_or_path, "
     "train_file, "
     "max_seq_length, lora_r, ...; tessera train --help)"},
};

constexpr std::size_t most_looked_at = 200;  // limit on names per file, because files may be hostile

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// 2 for a word that only this program has, 1 for a shared one, otherwise 0.
int weight_of(const OtherProgram& program, const std::string& name) {
  const auto among = [&](std::string_view words) {
    const std::vector<std::string> all = split(words, ' ');
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  return among(program.words) ? 2 : among(program.shared) ? 1 : 0;
}

}  // namespace

std::optional<ForeignWords> foreign_words(const std::vector<std::string>& names) {
  for (const OtherProgram& program : other_programs) {
    ForeignWords found{{}, program.why};
    int weight = 0;
    for (std::size_t i = 0; i < std::min(names.size(), most_looked_at); ++i)
      if (const int its = weight_of(program, with_underscores(names[i])); its > 0) {
        found.names.push_back(names[i]);
        weight += its;
      }
    if (weight >= 2) return found;
  }
  return std::nullopt;
}

bool concerns_training(std::string_view name) {
  static constexpr auto stems = std::to_array<std::string_view>(
      {"adam",      "adapter",     "alpha",     "amsgrad",  "attention", "attn",    "augment", "batch",  "beta",
       "bf16",      "bias",        "bits",      "causal",   "check",     "clip",    "config",  "data",   "decay",
       "deepspeed", "distill",     "dropout",   "dtype",    "ema",       "embed",   "entropy", "epoch",  "expert",
       "focal",     "fp16",        "fp8",       "freez",    "frozen",    "fsdp",    "gamma",   "grad",   "head",
       "init",      "kl",          "label",     "layer",    "learning",  "len",     "length",  "lora",   "loss",
       "lr",        "mask",        "model",     "momentum", "noise",     "norm",    "optim",   "pack",   "parallel",
       "peft",      "penalty",     "precision", "prompt",   "qlora",     "quant",   "rank",    "rate",   "regular",
       "reward",    "rope",        "sample",    "schedul",  "seed",      "shuffle", "smooth",  "step",   "target",
       "teacher",   "temperature", "template",  "tokens",   "tokenizer", "train",   "tune",    "tuning", "warmup",
       "weight",    "window",      "zero"});
  for (const std::string& part : split(with_underscores(to_lower(name)), '_'))
    for (const std::string_view stem : stems)
      if (part == stem || (stem.size() >= 4 && part.starts_with(stem))) return true;
  return false;
}

std::string passed_over_note(const std::vector<std::string>& said) {
  if (said.empty()) return {};
  return concat(join(said), said.size() == 1 ? " is" : " are", " unknown and ignored (--unknown warn)");
}

}  // namespace tessera::config
