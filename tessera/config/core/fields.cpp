// The table of all settings, one row each.
// Long because: it is a table of all settings.

#include <tessera/config/core/fields.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>
#include <tessera/layout/backends.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

// ---- helpers of the table -------------------------------------------------------------------------------------
template <auto section, auto member>
decltype(auto) at(RunConfig& config) {
  auto& place = config.*section.*member;
  if constexpr (Worded<std::remove_reference_t<decltype(place)>>)
    return WordSlot{reinterpret_cast<unsigned char*>(&place), &words_of(place)};
  else
    return (place);
}
WordSlot device_of(RunConfig& config) {
  return {reinterpret_cast<unsigned char*>(&config.device), &words_of(config.device)};
}

// A row of each section: the member of its part of RunConfig, then name, rule, help and environment variable.
template <auto member>
Field files(std::string_view name, Rule rule, std::string_view help, std::string_view environment = {}) {
  return {name, Section::files, &at<&RunConfig::files, member>, std::move(rule), help, environment};
}
template <auto member>
Field model(std::string_view name, Rule rule, std::string_view help, std::string_view environment = {}) {
  return {name, Section::model, &at<&RunConfig::model, member>, std::move(rule), help, environment};
}
template <auto member>
Field data(std::string_view name, Rule rule, std::string_view help, std::string_view environment = {}) {
  return {name, Section::data, &at<&RunConfig::data, member>, std::move(rule), help, environment};
}
template <auto member>
Field optimization(std::string_view name, Rule rule, std::string_view help, std::string_view environment = {}) {
  return {name, Section::optimization, &at<&RunConfig::optimization, member>, std::move(rule), help, environment};
}
template <auto member>
Field parallel(std::string_view name, Rule rule, std::string_view help, std::string_view environment = {}) {
  return {name, Section::parallel, &at<&RunConfig::parallel, member>, std::move(rule), help, environment};
}
template <auto member>
Field sharding(std::string_view name, Rule rule, std::string_view help, std::string_view environment = {}) {
  return {name, Section::sharding, &at<&RunConfig::sharding, member>, std::move(rule), help, environment};
}
template <auto member>
Field output(std::string_view name, Rule rule, std::string_view help, std::string_view environment = {}) {
  return {name, Section::output, &at<&RunConfig::output, member>, std::move(rule), help, environment};
}

Rule anything(std::string_view shown_as = {}) {
  Rule rule;
  rule.shown_as = shown_as;
  return rule;
}
Rule at_least(double least, double most = std::numeric_limits<double>::infinity()) {
  Rule rule;
  rule.least = least;
  rule.most = most;
  return rule;
}
Rule more_than(double least) {
  Rule rule = at_least(least);
  rule.above_least = true;
  return rule;
}
/// least <= value < most.
Rule from_to_below(double least, double most) {
  Rule rule = at_least(least, most);
  rule.below_most = true;
  return rule;
}
Rule steps_or_share() {
  Rule rule = at_least(0);
  rule.steps_or_share = true;
  return rule;
}
template <Worded E>
Rule words(const std::vector<std::string>& others = {}) {
  Rule rule;
  rule.words = words_of(E{}).words;
  rule.words.insert(rule.words.end(), others.begin(), others.end());
  rule.synonyms = words_of(E{}).synonyms;
  return rule;
}
Rule one_of(std::vector<std::string> words, std::vector<Synonym> synonyms = {}) {
  Rule rule;
  rule.words = std::move(words);
  rule.synonyms = std::move(synonyms);
  return rule;
}

/// The rule for one or several of these words; `all`: the meaning of the word "all".
Rule several_of(std::vector<std::string> words, std::string_view all) {
  Rule rule = one_of(std::move(words), {{"all", all}});
  rule.several = true;
  return rule;
}

using F = FilesConfig;
using M = ModelConfig;
using D = DataConfig;
using O = OptimizationConfig;
using P = ParallelConfig;
using S = ShardingConfig;
using W = OutputConfig;

// ---- the table ------------------------------------------------------------------------------------------------
const std::vector<Field>& table() {
  static const std::vector<Field> rows = {
      files<&F::config>("config", anything("FILE"), "settings by name in a YAML or JSON file; flags override it"),
      files<&F::config_file>("config_file", anything("FILE"),
                             "accelerate's YAML or JSON, as written by `accelerate config`"),
      files<&F::deepspeed>("deepspeed", anything("FILE|JSON"),
                           "DeepSpeed's JSON; \"auto\" is filled in from the other settings"),
      files<&F::args_file>("args_file", anything("FILE"),
                           "arguments of Hugging Face's Trainer in a .json, .yaml or .args file; may also be given as "
                           "the only argument without a flag"),
      files<&F::compat>("compat", words<Compat>(), "transformers version whose defaults apply where versions differ"),
      files<&F::unknown>(
          "unknown", words<UnknownWords>(),
          "unknown arguments and keys: warn = ignore those unrelated to training, with one warning; refuse (--strict) "
          "= also refuse keys that DeepSpeed or accelerate ignores; auto = as in their own program"),

      model<&M::model_name_or_path>("model_name_or_path", anything("DIR"),
                                    "Hugging Face folder whose weights training starts from"),
      model<&M::config_name>(
          "config_name", anything("NAME|FILE"),
          "train from scratch: a preset (gpt2, gpt2-tiny, llama-tiny), a config.json or a folder with one"),
      model<&M::config_overrides>("config_overrides", anything("K=V,..."),
                                  "changes to config_name's configuration: n_layer=4,n_embd=256"),
      model<&M::ref_model_name_or_path>(
          "ref_model_name_or_path", anything("DIR"),
          "preference losses: folder of the reference model; unset: the initial state of the trained model"),
      model<&M::tokenizer_name>(
          "tokenizer_name", anything("DIR|FILE"),
          "folder with tokenizer.json, that file, or byte (one token per byte); unset: the model folder's, else byte"),
      model<&M::lora_r>("lora_r", at_least(0, 4096),
                        "train low-rank adapters of this rank instead of the weights; 0 = off"),
      model<&M::lora_alpha>("lora_alpha", more_than(0), "scale of LoRA adapters: lora_alpha / lora_r"),
      model<&M::use_rslora>("use_rslora", anything(),
                            "scale LoRA adapters by lora_alpha / sqrt(lora_r) instead (rank-stabilized)"),
      model<&M::lora_dropout>("lora_dropout", from_to_below(0, 1), "dropout before the LoRA adapters"),
      model<&M::lora_target_modules>("lora_target_modules", anything("NAME,..."),
                                     "modules that get adapters (name suffixes, or one regular expression for whole "
                                     "names), or all-linear; unset: q_proj,v_proj (Llama family), c_attn (GPT-2)"),
      model<&M::lora_modules_to_save>("lora_modules_to_save", anything("NAME,..."),
                                      "with LoRA: modules that are trained in full (name suffixes: lm_head)"),
      model<&M::lora_merge>("lora_merge", anything(), "at the end also write the merged model to OUT/merged"),
      model<&M::load_in_4bit>("load_in_4bit", anything(),
                              "with LoRA: store the frozen weights of the blocks' linear layers in four bits (QLoRA)"),
      model<&M::load_in_8bit>("load_in_8bit", anything(),
                              "with LoRA: store them in eight bits, as int8 rows with a scale each"),
      model<&M::bnb_4bit_quant_type>("bnb_4bit_quant_type", words<QuantType>(),
                                     "with load_in_4bit: data type, normal quantiles or floats"),
      model<&M::bnb_4bit_use_double_quant>("bnb_4bit_use_double_quant", anything(),
                                           "with load_in_4bit: store the block scales in eight bits as well"),
      model<&M::bnb_4bit_compute_dtype>("bnb_4bit_compute_dtype", words<ComputeType>(),
                                        "with load_in_4bit: type of products; auto: according to --bf16 and --fp16"),
      model<&M::vision_tower>("vision_tower", anything("DIR"),
                              "CLIP folder through which the language model learns to read images (LLaVA)"),
      model<&M::pretrain_mm_mlp_adapter>(
          "pretrain_mm_mlp_adapter", anything("FILE"),
          "with vision_tower: initial weights of the projector (mm_projector.bin, or the folder of a model with one)"),
      model<&M::mm_projector_type>("mm_projector_type", anything("NAME"),
                                   "with vision_tower: the projector, linear or mlpNx_gelu (mlp2x_gelu)"),
      model<&M::mm_vision_select_layer>("mm_vision_select_layer", anything("N"),
                                        "with vision_tower: index of the hidden states to use; negative: from the end"),
      model<&M::mm_vision_select_feature>(
          "mm_vision_select_feature", one_of({"patch", "cls_patch"}),
          "with vision_tower: use the states of the patches, or also of the class token"),
      model<&M::tune_mm_mlp_adapter>("tune_mm_mlp_adapter", anything(),
                                     "vision-language models: train only the projector"),
      model<&M::freeze_backbone>("freeze_backbone", anything(), "vision-language models: freeze the language model"),
      model<&M::freeze_mm_mlp_adapter>("freeze_mm_mlp_adapter", anything(),
                                       "vision-language models: freeze the projector"),
      model<&M::use_mup>("use_mup", anything(),
                         "maximal update parameterization: a learning rate found at width mup_base_hidden_size also "
                         "holds for this model"),
      model<&M::mup_base_hidden_size>(
          "mup_base_hidden_size", at_least(1),
          "with use_mup: width of the model that the learning rate was found with; unset: this model's own"),
      model<&M::mup_embedding_mult>("mup_embedding_mult", more_than(0), "with use_mup: factor of the embeddings"),
      model<&M::mup_output_mult>("mup_output_mult", more_than(0),
                                 "with use_mup: factor of the logits; 1: base width / width"),
      model<&M::mup_base_head_dim>(
          "mup_base_head_dim", more_than(0),
          "with use_mup: attention scores are multiplied by the square root of this; unset: by 1"),
      model<&M::mup_attn_scale_power>("mup_attn_scale_power", at_least(0),
                                      "with use_mup: and divided by the head size to this power"),

      data<&D::train_file>(
          "train_file", anything("FILE..."),
          "training text (.txt), examples (.jsonl: text | prompt, completion | messages), or tokens (.bin with .idx); "
          "several, folders and patterns ('part-*.jsonl'), blends: 0.7 a.jsonl 0.3 folder; s3://BUCKET/KEY is fetched "
          "first"),
      data<&D::validation_file>("validation_file", anything("FILE..."),
                                "evaluation data of the same kinds; unset: split off the end of train_file"),
      data<&D::blend_mode>("blend_mode", words<BlendMode>(),
                           "when an epoch over weighted files ends: once all have been read completely (smaller ones "
                           "are repeated), or once the first one has"),
      data<&D::data_cache_dir>("data_cache_dir", anything("DIR|none"),
                               "folder for tokenized text, shared by all processes and runs; unset: "
                               "~/.cache/tessera/tokens; none: tokenize in memory at every start",
                               "TESSERA_CACHE"),
      data<&D::streaming>("streaming", anything(),
                          "tokenize in background threads during the run instead of before it"),
      data<&D::streaming_buffer>("streaming_buffer", at_least(1, 1 << 30),
                                 "with streaming: rows prepared ahead, among which the order is shuffled"),
      data<&D::validation_split_percentage>("validation_split_percentage", from_to_below(0, 100),
                                            "share of train_file held out for evaluation without a validation_file"),
      data<&D::block_size>("block_size", at_least(2, 1 << 24),
                           "tokens per block; unset: the model's positions, at most 1024"),
      data<&D::train_sampling_strategy>(
          "train_sampling_strategy", words<SamplingStrategy>(),
          "order of the rows: shuffled by seed, as in the file, or rows of similar length together (examples)"),
      data<&D::group_by_length>("group_by_length", anything(), "the same as --train_sampling_strategy group_by_length"),
      data<&D::group_by_modality_length>("group_by_modality_length", anything(),
                                         "the same as --train_sampling_strategy group_by_modality_length: each step "
                                         "has only rows with images, or only rows without"),
      data<&D::image_folder>("image_folder", anything("DIR"), "folder of the records' images"),
      data<&D::image_aspect_ratio>("image_aspect_ratio", words<ImageAspectRatio>(),
                                   "non-square images: crop to the centre, or pad with the mean colour"),
      data<&D::version>("version", anything("NAME"),
                        "LLaVA's template for conversations (v1, plain, llava_llama_2, ...); unset: the chat template, "
                        "with images vicuna_v1"),
      data<&D::text_column_name>("text_column_name", anything("NAME"), "field of a .jsonl line that holds plain text"),
      data<&D::column_map>("column_map", anything("NAME=COLUMN,..."),
                           "the file's field names for examples: prompt=question,completion=answer"),
      data<&D::chat_template>("chat_template", anything("FILE|TEXT"),
                              "Jinja template of conversations, as text or a file; unset: the tokenizer's"),
      data<&D::eos_token>("eos_token", anything("TOKEN"),
                          "end-of-text token; must be the tokenizer's own (tokenizer_config.json)"),
      data<&D::max_train_samples>("max_train_samples", at_least(0),
                                  "number of training rows (blocks of text), from the start; 0 = all"),
      data<&D::max_eval_samples>("max_eval_samples", at_least(0),
                                 "number of evaluation rows (blocks of text), from the start; 0 = all"),
      data<&D::reset_position_ids>("reset_position_ids", anything(),
                                   "documents in one block (text files, documents of a .bin) do not attend to each "
                                   "other, and their positions start at 0; otherwise a block is one text"),
      data<&D::max_seq_length>("max_seq_length", at_least(2, 1 << 24),
                               "tokens per example; longer ones are truncated; unset: block_size"),
      data<&D::max_prompt_length>("max_prompt_length", at_least(0, 1 << 24),
                                  "tokens kept from the end of an example's prompt; 0 = no separate limit"),
      data<&D::mock_data>("mock_data", anything(),
                          "train on generated tokens instead of files, to measure speed and memory: documents that "
                          "count 1, 2, 3, ..., as in Megatron-LM"),
      data<&D::packing>("packing", anything(),
                        "put several examples into one row (isolated from each other) instead of padding"),
      data<&D::assistant_only_loss>("assistant_only_loss", anything(),
                                    "in examples with messages, score only the assistant's messages"),
      data<&D::completion_only_loss>("completion_only_loss", anything(),
                                     "in examples with a prompt and a completion, do not score the prompt"),
      data<&D::mlm_probability>("mlm_probability", from_to_below(0, 1),
                                "masked language models: share of tokens to predict"),
      data<&D::fim_data>("fim_data", anything(),
                         "fill in the middle: texts of blocks are split into prefix, middle and suffix, and the middle "
                         "is moved to the end"),
      data<&D::fim_rate>("fim_rate", at_least(0, 1), "with fim_data: share of texts that are rearranged"),
      data<&D::fim_spm_rate>("fim_spm_rate", at_least(0, 1),
                             "with fim_data: share of those with the suffix first (SPM) instead of the prefix (PSM)"),
      data<&D::fim_split_sample>("fim_split_sample", anything("TOKEN"),
                                 "with fim_data: token between the fragments of a text (files of a repository), which "
                                 "are rearranged separately"),
      data<&D::fim_fragment_rate>("fim_fragment_rate", at_least(0, 1),
                                  "with fim_split_sample: share of a text's fragments that are rearranged"),
      data<&D::fim_no_prefix>("fim_no_prefix", anything("TEXT"),
                              "with fim_data: texts or fragments with this prefix are left unchanged"),
      data<&D::fim_prefix_token>("fim_prefix_token", anything("TOKEN"), "with fim_data: token before the prefix"),
      data<&D::fim_middle_token>("fim_middle_token", anything("TOKEN"), "with fim_data: token before the middle"),
      data<&D::fim_suffix_token>("fim_suffix_token", anything("TOKEN"), "with fim_data: token before the suffix"),
      data<&D::fim_pad_token>("fim_pad_token", anything("TOKEN"),
                              "with fim_data: token that pads a row that became shorter"),
      data<&D::fim_eod_token>(
          "fim_eod_token", anything("TOKEN"),
          "with fim_data: token at the end of a text; the texts of a row are rearranged separately"),
      data<&D::data_seed>("data_seed", at_least(0), "seed for the order of rows; unset: seed"),
      data<&D::dataloader_drop_last>(
          "dataloader_drop_last", anything(),
          "drop the last rows of an epoch if they do not fill a micro-batch on every process"),

      optimization<&O::max_steps>("max_steps", at_least(-1), "optimizer steps; if > 0, overrides num_train_epochs"),
      optimization<&O::num_train_epochs>("num_train_epochs", more_than(0),
                                         "passes over the training data; a fraction is allowed"),
      optimization<&O::exit_duration_in_mins>(
          "exit_duration_in_mins", at_least(0),
          "minutes after which the run saves a checkpoint and exits with code 3, to be resumed; 0 = never"),
      optimization<&O::per_device_train_batch_size>("per_device_train_batch_size", at_least(1),
                                                    "blocks per process and micro-batch"),
      optimization<&O::per_device_eval_batch_size>("per_device_eval_batch_size", at_least(1),
                                                   "blocks per process and evaluation batch"),
      optimization<&O::gradient_accumulation_steps>(
          "gradient_accumulation_steps", at_least(1),
          "micro-batches per optimizer step; with pp_size above 1, micro-batches in the pipeline"),
      optimization<&O::optim>("optim", words<OptimizerKind>(),
                              "optimizer; adamw_torch, adamw_torch_fused and paged_adamw_32bit mean adamw, lion_32bit "
                              "means lion, rmsprop_bnb rmsprop, adamw_bnb_8bit adamw_8bit"),
      optimization<&O::optim_args>("optim_args", anything("JSON|K=V,..."),
                                   "optimizer parameters without a flag of their own"),
      optimization<&O::learning_rate>("learning_rate", at_least(0), "peak learning rate"),
      optimization<&O::decoupled_lr>("decoupled_lr", at_least(0),
                                     "peak learning rate of word embeddings and the head; unset: learning_rate"),
      optimization<&O::decoupled_min_lr>("decoupled_min_lr", at_least(0),
                                         "with decoupled_lr: minimum learning rate of that group, like min_lr or "
                                         "lr_end of lr_scheduler_kwargs for the others; unset: the same"),
      optimization<&O::mm_projector_lr>(
          "mm_projector_lr", at_least(0),
          "vision-language models: peak learning rate of the projector; unset: learning_rate"),
      optimization<&O::lr_scheduler_type>("lr_scheduler_type", words<ScheduleType>(), "learning-rate schedule"),
      optimization<&O::lr_scheduler_kwargs>("lr_scheduler_kwargs", anything("JSON|K=V,..."),
                                            "parameters of the schedule: lr_end, power, num_cycles, min_lr, ..."),
      optimization<&O::warmup_steps>(
          "warmup_steps", at_least(0),
          "steps of linear warm-up; between 0 and 1: a share of all steps, like warmup_ratio"),
      optimization<&O::warmup_ratio>("warmup_ratio", at_least(0, 1), "warm-up as a share of all steps"),
      optimization<&O::weight_decay>("weight_decay", at_least(0),
                                     "decoupled weight decay; not applied to biases and norms"),
      optimization<&O::adam_beta1>("adam_beta1", from_to_below(0, 1), "decay of AdamW's first moment"),
      optimization<&O::adam_beta2>("adam_beta2", from_to_below(0, 1), "decay of AdamW's second moment"),
      optimization<&O::adam_epsilon>("adam_epsilon", at_least(0), "added to AdamW's denominator"),
      optimization<&O::momentum>("momentum", from_to_below(0, 1), "momentum of sgd"),
      optimization<&O::nesterov>("nesterov", anything(), "Nesterov momentum of sgd"),
      optimization<&O::label_smoothing_factor>("label_smoothing_factor", from_to_below(0, 1),
                                               "share of each target spread evenly over the vocabulary"),
      optimization<&O::average_tokens_across_devices>(
          "average_tokens_across_devices", anything(),
          "one mean over the scored tokens of all processes; false: mean of the processes' means"),
      optimization<&O::neftune_noise_alpha>("neftune_noise_alpha", at_least(0),
                                            "noise on the embeddings in training; 0 = none"),
      optimization<&O::preference_loss>(
          "preference_loss", words<PreferenceLoss>(),
          "train on pairs of a preferred and a rejected answer (.jsonl with prompt, chosen, rejected): sigmoid is "
          "DPO's loss; hinge, ipo, simpo, orpo, apo_zero, apo_down"),
      optimization<&O::preference_beta>("preference_beta", more_than(0),
                                        "preference losses: weight of the log-probability differences"),
      optimization<&O::preference_label_smoothing>("preference_label_smoothing", from_to_below(0, 0.5),
                                                   "sigmoid: share of pairs assumed to have swapped labels"),
      optimization<&O::preference_sft_weight>(
          "preference_sft_weight", at_least(0),
          "preference losses: weight of the chosen answer's cross-entropy, added to the loss"),
      optimization<&O::preference_gamma>("preference_gamma", at_least(0),
                                         "simpo: target margin between the chosen and the rejected answer"),
      optimization<&O::gamma_beta_ratio>("gamma_beta_ratio", at_least(0),
                                         "simpo: that margin as a multiple of preference_beta"),
      optimization<&O::disable_dropout>("disable_dropout", anything(),
                                        "train without dropout, overriding the model's config.json and --lora_dropout"),
      optimization<&O::router_aux_loss_coef>("router_aux_loss_coef", at_least(-1),
                                             "mixture of experts: factor of the load-balancing loss; 0 = none; -1 = "
                                             "from config.json (router_aux_loss_coef if output_router_logits is true)"),
      optimization<&O::router_aux_loss_form>("router_aux_loss_form", words<RouterLossForm>(),
                                             "scope over which that loss balances the load: all layers together, as in "
                                             "transformers, or each layer per micro-batch, row or step"),
      optimization<&O::router_z_loss_coef>(
          "router_z_loss_coef", at_least(0),
          "mixture of experts: factor of the loss that keeps router logits small (ST-MoE); 0 = none"),
      optimization<&O::router_bias_update_rate>(
          "router_bias_update_rate", at_least(0),
          "mixture of experts with e_score_correction_bias (DeepSeek-V3): after each step the bias grows by this for "
          "experts below the mean load, and shrinks for those above; 0 = constant"),
      optimization<&O::mtp_loss_scaling_factor>("mtp_loss_scaling_factor", at_least(0),
                                                "models with mtp_num_layers (multi-token prediction): factor of the "
                                                "depths' mean loss; 0 = depths are neither computed nor trained"),
      optimization<&O::moe_capacity_factor>(
          "moe_capacity_factor", at_least(0),
          "mixture of experts: in training an expert accepts at most this many times the mean of a micro-batch's slots "
          "(tokens x top-k / experts) and drops the rest; 0 = accepts all"),
      optimization<&O::moe_token_drop_policy>(
          "moe_token_drop_policy", words<TokenDrop>(),
          "with moe_capacity_factor: drop the slots with the smallest router weights, or the last ones"),
      optimization<&O::moe_pad_expert_input_to_capacity>(
          "moe_pad_expert_input_to_capacity", anything(),
          "with moe_capacity_factor: pad every expert's input with zero rows to its capacity, so that messages and "
          "memory have the same size in every step"),
      optimization<&O::tokens_per_batch>("tokens_per_batch", at_least(0, 1LL << 31),
                                         "tokens per process and micro-batch: as many rows as fit when padded to the "
                                         "longest one, instead of per_device_train_batch_size rows; 0 = use rows"),
      optimization<&O::balance_batches>("balance_batches", anything(),
                                        "give processes more or fewer of each step's rows by measured speed and "
                                        "memory; the step's rows, loss and gradient are those of equal shares"),
      optimization<&O::batch_size_schedule>(
          "batch_size_schedule", anything("START,INCREMENT,SAMPLES|0:ROWS AFTER:ROWS..."),
          "the rows per step grow from START by INCREMENT to the full batch after SAMPLES rows (Megatron-LM's "
          "rampup-batch-size), or are ROWS after AFTER rows (its step-batch-size-schedule); the learning-rate schedule "
          "still counts steps"),
      optimization<&O::learning_rate_rule>("learning_rate_rule", words<BatchRule>(),
                                           "scale learning_rate, which was found for learning_rate_batch_size rows per "
                                           "step, with the rows per step (linear) or with their square root"),
      optimization<&O::learning_rate_batch_size>("learning_rate_batch_size", at_least(0),
                                                 "rows per step for which learning_rate was found"),
      optimization<&O::gradient_noise_scale>("gradient_noise_scale", anything(),
                                             "measure the gradient noise scale at every step, without an extra pass: "
                                             "the number of rows per step beyond which more rows gain little"),
      optimization<&O::auto_find_batch_size>("auto_find_batch_size", anything(),
                                             "halve per_device_train_batch_size until a step fits into memory"),
      optimization<&O::full_determinism>("full_determinism", anything(), "use deterministic algorithms everywhere"),
      optimization<&O::max_grad_norm>("max_grad_norm", at_least(0), "clip gradients to this global norm; 0 = never"),
      optimization<&O::seed>("seed", at_least(0), "seed for initial weights, order of blocks and dropout"),
      optimization<&O::bf16>("bf16", anything(),
                             "matrix products in bfloat16; weights, gradients and optimizer states stay fp32"),
      optimization<&O::fp16>("fp16", anything(), "matrix products in float16, with loss scaling"),
      optimization<&O::fp8_format>("fp8_format", words<Fp8Format>(),
                                   "the blocks' linear layers multiply in eight bits, e4m3, or (hybrid) e5m2 for "
                                   "output gradients; everything else is bf16 or fp32"),
      optimization<&O::fp8_recipe>("fp8_recipe", words<Fp8Recipe>(),
                                   "which values share a scale: a tensor, by its maxima in earlier steps (delayed) or "
                                   "its current maximum (tensorwise), blocks of 128, or 32 neighbours (mxfp8)"),
      optimization<&O::fp8_amax_history_len>("fp8_amax_history_len", at_least(1, 65536),
                                             "delayed fp8: number of steps whose maxima are kept"),
      optimization<&O::fp8_amax_compute_algo>("fp8_amax_compute_algo", words<Fp8Amax>(),
                                              "delayed fp8: which of the maxima sets the scale"),
      optimization<&O::fp8_margin>(
          "fp8_margin", at_least(0, 16),
          "delayed and tensorwise fp8: scales leave headroom for values 2^this times as large"),
      optimization<&O::num_layers_at_start_in_bf16>("num_layers_at_start_in_bf16", at_least(0),
                                                    "fp8: this many leading blocks are excluded"),
      optimization<&O::num_layers_at_end_in_bf16>("num_layers_at_end_in_bf16", at_least(0),
                                                  "fp8: this many trailing blocks are excluded"),
      optimization<&O::compression_training>(
          "compression_training", anything("FILE|JSON"),
          "DeepSpeed's section of that name: quantize weights and inputs of linear layers during training"),
      optimization<&O::progressive_layer_drop>(
          "progressive_layer_drop", anything("FILE|JSON"),
          "DeepSpeed's section of that name: skip blocks at random, later ones more often"),
      optimization<&O::data_efficiency>("data_efficiency", anything("FILE|JSON"),
                                        "DeepSpeed's section of that name, of which random_ltd is supported: some "
                                        "blocks process a random subset of the tokens"),
      optimization<&O::loss_scale>("loss_scale", at_least(0), "fp16: fixed scale; 0 = dynamic"),
      optimization<&O::initial_scale_power>("initial_scale_power", at_least(0, 32),
                                            "fp16: initial dynamic scale, as a power of 2"),
      optimization<&O::loss_scale_window>("loss_scale_window", at_least(1),
                                          "fp16: steps without overflow before the scale is doubled"),
      optimization<&O::min_loss_scale>("min_loss_scale", more_than(0),
                                       "fp16: the run ends when the dynamic scale falls below this"),
      optimization<&O::hysteresis>("hysteresis", at_least(1),
                                   "fp16: overflows before the dynamic scale falls (DeepSpeed: 2)"),
      optimization<&O::consecutive_hysteresis>("consecutive_hysteresis", anything(),
                                               "fp16: a step without overflow restores the hysteresis"),
      optimization<&O::gradient_predivide_factor>(
          "gradient_predivide_factor", more_than(0),
          "divide gradients by this before summing over processes, and by the rest afterwards"),
      optimization<&O::bf16_full_eval>("bf16_full_eval", anything(), "evaluate with weights in bfloat16"),
      optimization<&O::fp16_full_eval>("fp16_full_eval", anything(), "evaluate with weights in float16"),
      optimization<&O::bf16_optimizer_states>("bf16_optimizer_states", anything(),
                                              "store optimizer moments in bfloat16: half of their memory"),
      optimization<&O::stochastic_rounding>(
          "stochastic_rounding", anything(),
          "round bfloat16 moments stochastically, so that small changes are not lost"),
      optimization<&O::gradient_checkpointing>(
          "gradient_checkpointing", anything(),
          "keep only the inputs of the blocks for backward, which computes the rest again: less memory, a third more "
          "computing"),
      optimization<&O::gradient_checkpointing_kwargs>("gradient_checkpointing_kwargs", anything("JSON|K=V,..."),
                                                      "which blocks, and how: every=2, names=REGEX, part=attention, "
                                                      "offload_inputs_to=DIR"),

      parallel<&P::num_processes>("num_processes", at_least(1, 4096),
                                  "processes to start on this machine; unset: one, or the number given by the launcher",
                                  "WORLD_SIZE"),
      parallel<&P::pp_size>("pp_size", at_least(1, 4096),
                            "pipeline-parallel processes, which divide the model's layers; gradient_accumulation_steps "
                            "is the number of micro-batches per step"),
      parallel<&P::pipeline_schedule>(
          "pipeline_schedule", anything("NAME|FILE"),
          "pipeline schedule: gpipe, 1f1b, interleaved_1f1b, zbv, ... (tessera plan schedule --list), or a schedule "
          "file, with pp_size ranks and gradient_accumulation_steps micro-batches"),
      parallel<&P::pipeline_stages_per_rank>(
          "pipeline_stages_per_rank", at_least(1, 4096),
          "stages of the model per pipeline process; unset: the fewest that the schedule supports"),
      parallel<&P::pipeline_group_size>("pipeline_group_size", at_least(1, 1 << 20),
                                        "interleaved schedules: micro-batches that pass one stage of a process before "
                                        "its next stage runs; unset: pp_size or slightly more"),
      parallel<&P::pipeline_layout>(
          "pipeline_layout", anything("LAYOUT"),
          "blocks of each stage, in Megatron-LM's form: Et*3|(tt|)*2t|L (E embeddings, t a block, a its attention and "
          "f its MLP, L the end, | between stages); flops (the shortest step of this schedule by FLOP, head included) "
          "or half_blocks (the same, but blocks may be cut); unset: even"),
      parallel<&P::pipeline_gather>("pipeline_gather", words<PipelineGather>(),
                                    "if a stage's parameters are sharded (full_shard): gather them for each pass, or "
                                    "once per batch, which keeps a process's stages whole meanwhile"),
      parallel<&P::tp_size>("tp_size", at_least(1, 4096),
                            "tensor-parallel processes, which divide each layer's matrices"),
      parallel<&P::cp_size>("cp_size", at_least(1, 4096), "context-parallel processes, which divide each sequence"),
      parallel<&P::ep_size>("ep_size", at_least(1, 4096),
                            "mixture of experts: expert-parallel processes (neighbours within a stage), which divide "
                            "each layer's experts"),
      parallel<&P::etp_size>("etp_size", at_least(1, 4096),
                             "mixture of experts: processes, out of tp_size, that divide each expert; unset: tp_size"),
      parallel<&P::sequence_parallel>(
          "sequence_parallel", anything(),
          "with tp_size above 1: shard norms and dropout along the sequence, which saves activations"),
      parallel<&P::tp_comm_overlap>("tp_comm_overlap", anything(),
                                    "with tp_size above 1: compute products whose outputs are summed over ranks in two "
                                    "halves, and sum the first while the second is computed"),
      parallel<&P::cp_comm_type>(
          "cp_comm_type", words<layout::ContextMethod>(),
          "how attention reads the other parts of a sequence: keys and values circulate in a ring (p2p), are gathered, "
          "or heads are exchanged (a2a, Ulysses); or heads between neighbours and a ring across groups (a2a+p2p)"),
      parallel<&P::cp_a2a_size>(
          "cp_a2a_size", at_least(2, 4096),
          "a2a+p2p: neighbours that exchange heads; unset: the smallest divisor of cp_size above 1"),
      parallel<&P::backend>(
          "backend", one_of(layout::backend_names(/*with_comparison=*/false)),
          "communication backend; auto: shm on one host, hier across hosts, nccl on GPUs; mpi: the cluster's own "
          "library, under its mpirun",
          "TESSERA_BACKEND"),
      Field{"device", Section::parallel, &device_of, words<Device>(),
            "compute device; cuda needs the plug-in; auto: cuda if it is built and a GPU is visible; xla: a PJRT "
            "plug-in, for TPUs"},
      parallel<&P::xla_devices>("xla_devices", at_least(0, 65536),
                                "devices of --device xla; 0 = all of the PJRT plug-in's (XLA's CPU plug-in: 1)"),
      parallel<&P::xla_fsdp_v2>(
          "xla_fsdp_v2", anything(),
          "with --device xla: one program over the rows of all devices, which the compiler divides "
          "by annotations (FSDPv2), instead of explicit collectives"),
      parallel<&P::pjrt_plugin>("pjrt_plugin", anything(),
                                "PJRT plug-in file for --device xla; unset: TPU_LIBRARY_PATH (libtpu.so)",
                                "TESSERA_PJRT_PLUGIN"),
      parallel<&P::xla_cache_dir>("xla_cache_dir", anything("DIR|none"),
                                  "folder in which compiled programs of --device xla are kept, 8 GiB of those used "
                                  "last, so that a run starts without compiling; unset: ~/.cache/tessera/xla",
                                  "TESSERA_XLA_CACHE"),
      parallel<&P::main_process_port>("main_process_port", at_least(0, 65535),
                                      "TCP port of the rendezvous; 0 = any free port"),
      parallel<&P::threads_per_process>("threads_per_process", at_least(0, 4096),
                                        "CPU threads per process; 0 = cores / processes"),
      parallel<&P::ddp_bucket_cap_mb>("ddp_bucket_cap_mb", more_than(0), "size of the gradient buckets in MiB"),
      parallel<&P::ddp_find_unused_parameters>("ddp_find_unused_parameters", anything(),
                                               "detect parameters that are unused in a step"),
      parallel<&P::ddp_broadcast_buffers>("ddp_broadcast_buffers", anything(),
                                          "broadcast rank 0's buffers before each forward"),
      parallel<&P::ddp_timeout>("ddp_timeout", more_than(0), "time limit of a collective in seconds"),
      parallel<&P::deterministic_reduce>("deterministic_reduce", anything(),
                                         "bitwise identical results for any number of processes; needs logical_shards"),
      parallel<&P::logical_shards>("logical_shards", at_least(1),
                                   "micro-batches per step over all processes; a multiple of their number"),
      parallel<&P::max_restarts>("max_restarts", at_least(0), "restarts of a failed job from its newest checkpoint",
                                 "TORCHELASTIC_MAX_RESTARTS"),
      parallel<&P::hang_timeout>("hang_timeout", at_least(-1),
                                 "seconds that a process may sleep without progress; 0 = 300; -1 = unlimited"),

      sharding<&S::fsdp>("fsdp", anything("WORDS"),
                         "full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 or no_shard; also auto_wrap, "
                         "size_based_auto_wrap, offload: --fsdp \"full_shard auto_wrap\""),
      sharding<&S::fsdp_config>("fsdp_config", anything("FILE|JSON"),
                                "Hugging Face's and accelerate's fsdp_config: JSON or YAML; flags override it"),
      sharding<&S::zero_stage>(
          "zero_stage", at_least(0, 3),
          "DeepSpeed's stage: 1 shards optimizer states over the processes, 2 also gradients, 3 also parameters"),
      sharding<&S::strategy>("strategy", words<Strategy>({"auto"}),
                             "the same in one word (zero3 is full_shard); auto: see auto_strategy"),
      sharding<&S::auto_min_batch_size>(
          "auto_min_batch_size", at_least(1),
          "with auto_strategy: fewest blocks per process and micro-batch that it may choose"),
      sharding<&S::auto_max_batch_size>("auto_max_batch_size", at_least(1),
                                        "with auto_strategy: most blocks; unset: no limit"),
      sharding<&S::auto_strategy>("auto_strategy", anything(),
                                  "let the planner choose strategy, mesh, recomputation and micro-batch size for the "
                                  "same global batch; given settings are kept; --strategy auto"),
      sharding<&S::memory_check>("memory_check", words<MemoryCheck>(),
                                 "what to do if the run's predicted memory exceeds the available memory"),
      sharding<&S::shard_group_size>("shard_group_size", at_least(1),
                                     "processes that share one set of shards; the others hold replicas (HSDP); unset: "
                                     "all, for hybrid_shard those of one host"),
      sharding<&S::cpu_offload>("cpu_offload", words<Offload>(),
                                "what to keep off the device: optimizer states, or parameters and gradients, or both"),
      sharding<&S::offload_folder>("offload_folder", anything("DIR"),
                                   "CPU only: folder for the memory-mapped files of offloaded memory; unset: TMPDIR"),
      sharding<&S::auto_wrap_policy>("auto_wrap_policy", words<AutoWrap>(),
                                     "which modules are gathered and freed together: blocks, by size, by name, or all"),
      sharding<&S::transformer_layer_cls_to_wrap>(
          "transformer_layer_cls_to_wrap", anything("CLASS,..."),
          "block classes, Hugging Face's (LlamaDecoderLayer, ...) or ours; unset: the model's own"),
      sharding<&S::min_num_params>("min_num_params", at_least(0),
                                   "size_based_wrap: elements per module; 0 = not given"),
      sharding<&S::wrap_pattern>("wrap_pattern", anything("REGEX"), "regex_wrap: pattern for whole module names"),
      sharding<&S::ignored_modules>("ignored_modules", anything("REGEX"),
                                    "pattern for whole names of modules whose parameters are not sharded"),
      sharding<&S::backward_prefetch>("backward_prefetch", words<layout::BackwardPrefetch>(),
                                      "when backward gathers the next module's parameters: before the current "
                                      "gradients are computed, after, or not ahead"),
      sharding<&S::forward_prefetch>("forward_prefetch", anything(),
                                     "gather the next module's parameters ahead in forward"),
      sharding<&S::limit_all_gathers>("limit_all_gathers", anything(),
                                      "gather at most one module ahead; otherwise three"),
      sharding<&S::reshard_after_forward>(
          "reshard_after_forward", words<Choice>(),
          "free whole parameters between forward and backward; auto: the strategy's choice"),
      sharding<&S::persistence_threshold>("persistence_threshold", at_least(0),
                                          "parameters with at most this many elements stay whole between steps"),
      sharding<&S::reduce_bucket_size>(
          "reduce_bucket_size", at_least(1),
          "elements that are reduced together (ddp, zero1, zero2); like ddp_bucket_cap_mb"),
      sharding<&S::overlap_comm>("overlap_comm", anything(), "overlap communication with computation"),
      sharding<&S::sync_module_states>("sync_module_states", anything(),
                                       "broadcast rank 0's parameters and buffers at the start"),
      sharding<&S::cpu_ram_efficient_loading>("cpu_ram_efficient_loading", anything(),
                                              "each process reads only its own part of the weights"),
      sharding<&S::param_dtype>("param_dtype", words<FloatType>(),
                                "type of gathered parameters and the computation; the trained shards stay fp32"),
      sharding<&S::reduce_dtype>("reduce_dtype", words<FloatType>(),
                                 "type of gradients while they are summed over processes"),
      sharding<&S::buffer_dtype>("buffer_dtype", words<FloatType>(), "type of floating-point buffers"),
      sharding<&S::data_dependent>("data_dependent", anything(),
                                   "processes may skip modules, or call them in different orders; slower"),
      sharding<&S::grad_compression>("grad_compression", anything("METHOD"),
                                     "representation of gradients during reduction: fp16, bf16, powersgd:rank=2 "
                                     "(uncompressed before step start=1000), topk:ratio=0.01 or onebit:warmup=100"),

      output<&W::output_dir>("output_dir", anything("DIR"),
                             "folder for the model, checkpoints, metrics.jsonl and report.html"),
      output<&W::overwrite_output_dir>("overwrite_output_dir", anything(),
                                       "replace the run in output_dir; files that no run wrote stay"),
      output<&W::resume_from_checkpoint>(
          "resume_from_checkpoint", anything("DIR|s3://...|last|auto"),
          "checkpoint to resume from; last (or true) = the newest in output_dir; auto = the same, or from scratch if "
          "none exists; s3://BUCKET/PREFIX = the newest there, fetched into output_dir"),
      output<&W::logging_steps>("logging_steps", steps_or_share(),
                                "steps between two lines of metrics; below 1: a share of all steps"),
      output<&W::logging_first_step>("logging_first_step", anything(), "also log metrics of the first step"),
      output<&W::logging_strategy>("logging_strategy", words<Interval>(), "when metrics are logged"),
      output<&W::logging_nan_inf_filter>("logging_nan_inf_filter", anything(),
                                         "in log lines, replace a non-finite loss by the mean of the others"),
      output<&W::run_name>("run_name", anything("NAME"),
                           "name of the run in the report and TensorBoard; unset: output_dir's name"),
      output<&W::include_num_input_tokens_seen>("include_num_input_tokens_seen", words<CountedTokens>(),
                                                "add the tokens seen so far to log lines"),
      output<&W::log_format>("log_format", words<LogFormat>(),
                             "format of log lines: {'loss': 10.5949, ...} as in transformers 4, {'loss': '10.59', ...} "
                             "as in 5 (hf5), or plain words"),
      output<&W::report_to>("report_to", several_of({"tensorboard", "csv", "none"}, "tensorboard,csv"),
                            "additional destinations of metrics besides metrics.jsonl and report.html: TensorBoard "
                            "events, metrics.csv, both (comma-separated), or all"),
      output<&W::metrics_file>(
          "metrics_file", anything("FILE"),
          "file with the latest metrics in Prometheus' text format, for node_exporter's textfile collector"),
      output<&W::metrics_port>("metrics_port", at_least(0, 65535),
                               "serve these metrics at http://127.0.0.1:PORT/metrics; 0 = off"),
      output<&W::logging_dir>("logging_dir", anything("DIR"), "folder for TensorBoard events; unset: OUT/runs"),
      output<&W::profile>("profile", anything(), "write trace.json: a timeline of all ranks for Perfetto"),
      output<&W::hf_loss_scale>("hf_loss_scale", anything(),
                                "report the loss divided by all labels, as transformers' Trainer does"),
      output<&W::save_strategy>("save_strategy", words<SaveStrategy>(), "when checkpoints are written"),
      output<&W::save_steps>("save_steps", steps_or_share(),
                             "steps between two checkpoints; below 1: a share of all steps"),
      output<&W::save_total_limit>("save_total_limit", at_least(0), "checkpoints kept, oldest removed; 0 = all"),
      output<&W::save_only_model>("save_only_model", anything(),
                                  "checkpoints without optimizer state, which cannot be resumed"),
      output<&W::model_card>("model_card", anything(),
                             "write README.md, a card of the finished model generated from the run's records; one "
                             "written by a person is kept"),
      output<&W::sigterm_is_success>("sigterm_is_success", anything(),
                                     "after SIGTERM and its checkpoint, exit with code 0 instead of 3",
                                     "TESSERA_SIGTERM_IS_SUCCESS"),
      output<&W::save_state_dict_type>(
          "save_state_dict_type", words<StateDictType>(),
          "each process writes its part of a checkpoint (sharded), or the first one writes whole tensors, gathered one "
          "by one (full); local is the same as sharded. Both can be read with any number of processes"),
      output<&W::async_save>("async_save", anything(), "continue training while a sharded checkpoint is written"),
      output<&W::async_save_when_busy>(
          "async_save_when_busy", words<WhenBusy>(),
          "when a checkpoint is due while the previous one is still being written: wait for it, or skip this one"),
      output<&W::checkpoint_in_memory>("checkpoint_in_memory", at_least(0),
                                       "steps between in-memory copies of the training state, from which a job is "
                                       "restarted (max_restarts) after a process died; 0 = none"),
      output<&W::ignore_data_skip>("ignore_data_skip", anything(), "a resumed run restarts its epoch's data"),
      output<&W::eval_strategy>("eval_strategy", words<Interval>(), "when the model is evaluated"),
      output<&W::eval_steps>("eval_steps", steps_or_share(),
                             "steps between two evaluations; below 1: a share of all steps; unset: logging_steps"),
      output<&W::eval_on_start>("eval_on_start", anything(), "evaluate before the first step"),
      output<&W::eval_delay>("eval_delay", at_least(0), "steps (or epochs) before the first evaluation"),
      output<&W::do_eval>("do_eval", anything(), "evaluate after training"),
      output<&W::load_best_model_at_end>("load_best_model_at_end", anything(),
                                         "export the best checkpoint as the final model"),
      output<&W::metric_for_best_model>(
          "metric_for_best_model", anything("NAME"),
          "metric that selects the best model: loss, perplexity, for classifiers accuracy or f1; unset: loss"),
      output<&W::greater_is_better>("greater_is_better", words<Choice>(),
                                    "whether a greater metric is better; auto: false for losses"),
      output<&W::nan_policy>("nan_policy", words<NanPolicy>(),
                             "a step with a non-finite loss or gradient ends the run, or is skipped"),
      output<&W::nan_skip_limit>("nan_skip_limit", at_least(1),
                                 "consecutive steps that nan_policy skip may skip; one more ends the run"),
      output<&W::check_replicas_steps>("check_replicas_steps", at_least(0),
                                       "steps between comparisons of replicated state across processes; 0 = never"),
      output<&W::disable_tqdm>("disable_tqdm", anything(), "no progress line"),
  };
  return rows;
}

}  // namespace

std::span<const Field> fields() { return table(); }

const Field* find_field(std::string_view name) {
  const auto all = fields();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Field& field) { return field.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::span<const std::pair<std::string_view, std::string_view>> aliases() {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 38> names = {{
      {"data_path", "train_file"},                  // the scripts of Alpaca, FastChat, LLaVA, Qwen
      {"evaluation_strategy", "eval_strategy"},     // transformers before v4.46
      {"embedding_learning_rate", "decoupled_lr"},  // Unsloth
      {"deepspeed_config", "deepspeed"},            // DeepSpeed's own flag
      {"deepscale_config", "deepspeed"},
      {"per_gpu_train_batch_size", "per_device_train_batch_size"},  // transformers v4
      {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
      {"ddp_backend", "backend"},                              // TrainingArguments
      {"num_cpu_threads_per_process", "threads_per_process"},  // accelerate launch
      {"nproc_per_node", "num_processes"},                     // torchrun
      {"num_gpus", "num_processes"},                           // deepspeed
      {"pipeline_parallel_size", "pp_size"},
      {"pp_schedule", "pipeline_schedule"},
      {"tensor_parallel_size", "tp_size"},
      {"tensor_model_parallel_size", "tp_size"},  // Megatron-LM
      {"context_parallel_size", "cp_size"},       // Megatron-LM
      {"expert_parallel_size", "ep_size"},
      {"expert_model_parallel_size", "ep_size"},  // Megatron-LM
      {"expert_tensor_parallel_size", "etp_size"},
      {"moe_expert_capacity_factor", "moe_capacity_factor"},  // Megatron-LM
      {"fsdp_sharding_strategy", "strategy"},                 // accelerate launch; so is the next row
      {"fsdp_auto_wrap_policy", "auto_wrap_policy"},
      {"fsdp_wrap_policy", "auto_wrap_policy"},  // this and the next: Hugging Face's guide
      {"fsdp_min_num_param", "min_num_params"},
      {"min_num_param", "min_num_params"},
      {"fsdp_backward_prefetch_policy", "backward_prefetch"},
      {"fsdp_offload_params", "cpu_offload"},
      {"fsdp_state_dict_type", "save_state_dict_type"},
      {"fsdp_transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap"},  // also transformers v4
      {"fsdp_min_num_params", "min_num_params"},                                // also transformers v4
      {"fsdp_backward_prefetch", "backward_prefetch"},
      {"fsdp_forward_prefetch", "forward_prefetch"},
      {"fsdp_reshard_after_forward", "reshard_after_forward"},
      {"fsdp_sync_module_states", "sync_module_states"},
      {"fsdp_cpu_ram_efficient_loading", "cpu_ram_efficient_loading"},
      {"fsdp_activation_checkpointing", "gradient_checkpointing"},
      {"stage3_param_persistence_threshold", "persistence_threshold"},  // DeepSpeed
      {"ddp_comm_hook", "grad_compression"},                            // accelerate's DistributedDataParallelKwargs
  }};
  return names;
}

}  // namespace tessera::config
