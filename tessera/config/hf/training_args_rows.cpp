// How each argument of transformers' TrainingArguments (4.57, 5.23, and older names) and of its scripts is handled.

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/megatron/megatron_args.h>

#include <algorithm>
#include <set>

namespace tessera::config {
namespace {

using Shape = ArgumentShape;

constexpr TrainingArgument acts(std::string_view key, std::string_view setting, Shape shape = Shape::word,
                                std::string_view why = {}) {
  return {{key, setting, Effect::acts, why}, shape, {}};
}
constexpr TrainingArgument acts(std::string_view key, Shape shape = Shape::word, std::string_view why = {}) {
  return acts(key, key, shape, why);
}
constexpr TrainingArgument ignored(std::string_view key, Shape shape, std::string_view unset, std::string_view why) {
  return {{key, {}, Effect::ignored, why}, shape, unset};
}
constexpr TrainingArgument refused(std::string_view key, Shape shape, std::string_view unset, std::string_view why) {
  return {{key, {}, Effect::refused, why}, shape, unset};
}

/// An argument that only TRL has.
constexpr TrainingArgument of_trl(TrainingArgument argument) {
  argument.program = "TRL";
  return argument;
}

constexpr TrainingArgument maybe_trl(TrainingArgument argument) {
  argument.program = trl_or_another;
  return argument;
}

/// An argument that only TRL's trainers for pairs of answers have (dpo_config.py, cpo_config.py).
constexpr TrainingArgument of_dpo(TrainingArgument argument) {
  argument.program = "DPOTrainer";
  return argument;
}

constexpr std::string_view kNoUpload = "nothing is uploaded";
constexpr std::string_view kLoader = "rows are read from memory-mapped files, without worker processes";
constexpr std::string_view kRows = "rows are read as stored; columns cannot be selected";
constexpr std::string_view kOnlyLoss = "evaluation computes the loss without gathering predictions";
constexpr std::string_view kCompiled = "kernels are compiled ahead of time";
constexpr std::string_view kFused = "fused operations are always used";
constexpr std::string_view kAmp = "mixed precision is built in: --bf16 and --fp16 select it";
constexpr std::string_view kLogLevel = "TESSERA_LOG (debug, info, warning, error) sets the verbosity";
constexpr std::string_view kTracker =
    "metrics go to TensorBoard or CSV (--report_to), and always to metrics.jsonl and report.html";
constexpr std::string_view kLocal = "nothing is downloaded: models and text are local files";
constexpr std::string_view kChosen = "the implementation is chosen automatically";
constexpr std::string_view kShares = "each process reads its own rows, in an order that depends on the seed only";
constexpr std::string_view kDatasets = "data sets are not downloaded: training uses the files of --train_file";
constexpr std::string_view kNotOfPairs =
    "only the pair losses of --preference_loss are implemented, with a fixed reference: remove it";
constexpr std::string_view kReference =
    "the reference's log-probabilities are always computed before the first step, and cached";
constexpr std::string_view kEncoderDecoder =
    "encoder-decoder models (T5) are not implemented: remove it, and train a causal model";
constexpr std::string_view kAdapters =
    "adapters of this kind are not implemented: remove it; --lora_r trains plain LoRA";
constexpr std::string_view kSynonym = "synonym in other programs";
constexpr std::string_view kTwoLengths =
    "prompt and answer share one limit: remove it, and use --max_seq_length (the sum of QLoRA's "
    "two)";
constexpr std::string_view kAllThreads = "rows are read and packed one after another";
constexpr std::string_view kHubFolder =
    "nothing is uploaded; --output_dir is a complete Hugging Face folder, ready for `hf upload`";

constexpr TrainingArgument arguments[] = {
    // task and output
    acts("output_dir"),
    acts("overwrite_output_dir", Shape::boolean, "version 4"),
    ignored("do_train", Shape::boolean, "true", "tessera train always trains"),
    acts("do_eval", Shape::boolean),
    ignored("do_predict", Shape::boolean, "false",
            "as in run_clm.py, there is nothing to predict; tessera generate continues texts with the model"),
    acts("resume_from_checkpoint"),
    acts("run_name"),
    acts("seed"),
    acts("data_seed"),
    acts("full_determinism", Shape::boolean),
    // length and batch
    acts("num_train_epochs"),
    acts("max_steps"),
    acts("per_device_train_batch_size"),
    acts("per_device_eval_batch_size"),
    acts("per_gpu_train_batch_size", "per_device_train_batch_size", Shape::word, "version 4"),
    acts("per_gpu_eval_batch_size", "per_device_eval_batch_size", Shape::word, "version 4"),
    acts("gradient_accumulation_steps"),
    acts("auto_find_batch_size", Shape::boolean),
    acts("average_tokens_across_devices", Shape::boolean),
    // optimizer and schedule
    acts("optim"),
    acts("optim_args"),
    refused("optim_target_modules", Shape::words, "",
            "it is for the GaLore and APOLLO optimizers, which are not implemented: --lora_target_modules selects the "
            "modules of LoRA adapters"),
    acts("adafactor", "optim", Shape::boolean, "version 4: --optim adafactor"),
    acts("learning_rate"),
    acts("lr_scheduler_type"),
    acts("lr_scheduler_kwargs", Shape::object),
    acts("warmup_steps", Shape::word, "below 1: a share of all steps, as warmup_ratio"),
    acts("warmup_ratio", Shape::word, "version 4"),
    acts("weight_decay"),
    acts("adam_beta1"),
    acts("adam_beta2"),
    acts("adam_epsilon"),
    acts("max_grad_norm"),
    acts("label_smoothing_factor"),
    acts("neftune_noise_alpha"),
    // precision
    acts("bf16", Shape::boolean),
    acts("fp16", Shape::boolean),
    acts("bf16_full_eval", Shape::boolean),
    acts("fp16_full_eval", Shape::boolean),
    ignored("tf32", Shape::boolean, "", "fp32 products use the library's default; --bf16 is faster"),
    ignored("fp16_opt_level", Shape::word, "o1", kAmp),
    ignored("fp16_backend", Shape::word, "auto", kAmp),
    ignored("half_precision_backend", Shape::word, "auto", kAmp),
    // memory and kernels
    acts("gradient_checkpointing", Shape::boolean),
    acts("gradient_checkpointing_kwargs", Shape::object),
    acts("activation_checkpointing", "gradient_checkpointing", Shape::boolean, "version 5.20 and later"),
    acts("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs", Shape::object, "version 5.20 and later"),
    ignored("torch_compile", Shape::boolean, "false", kCompiled),
    ignored("torch_compile_backend", Shape::word, "", kCompiled),
    ignored("torch_compile_mode", Shape::word, "", kCompiled),
    ignored("torchdynamo", Shape::word, "", kCompiled),
    ignored("jit_mode_eval", Shape::boolean, "false", kCompiled),
    ignored("use_ipex", Shape::boolean, "false", kCompiled),
    ignored("use_liger_kernel", Shape::boolean, "false", kFused),
    ignored("liger_kernel_config", Shape::object, "{}", kFused),
    ignored("use_cache", Shape::boolean, "false", "training does not cache keys and values"),
    ignored("torch_empty_cache_steps", Shape::word, "", "buffers come from a separate pool, which does not fragment"),
    refused("past_index", Shape::word, "-1", "models that carry memory across batches are not implemented: remove it"),
    // logging
    acts("logging_strategy"),
    acts("logging_steps", Shape::word, "below 1: a share of all steps"),
    acts("logging_first_step", Shape::boolean),
    acts("logging_nan_inf_filter", Shape::boolean),
    acts("logging_dir", Shape::word, "version 4"),
    acts("report_to", Shape::words, "tensorboard, csv, none or all; other trackers are named in a warning"),
    acts("include_num_input_tokens_seen"),
    acts("disable_tqdm", Shape::boolean),
    ignored("include_tokens_per_second", Shape::boolean, "false", "metrics always include tokens per second"),
    ignored("skip_memory_metrics", Shape::boolean, "true", "the report always includes peak memory"),
    ignored("log_level", Shape::word, "passive", kLogLevel),
    ignored("log_level_replica", Shape::word, "warning", kLogLevel),
    ignored("log_on_each_node", Shape::boolean, "true", "rank 0 logs for all"),
    ignored("project", Shape::word, "huggingface", kTracker),
    ignored("trackio_space_id", Shape::word, "trackio", kTracker),
    ignored("trackio_bucket_id", Shape::word, "", kTracker),
    ignored("trackio_static_space_id", Shape::word, "", kTracker),
    // evaluation
    acts("eval_strategy"),
    acts("evaluation_strategy", "eval_strategy", Shape::word, "before version 4.46"),
    acts("eval_steps", Shape::word, "below 1: a share of all steps"),
    acts("eval_delay"),
    acts("eval_on_start", Shape::boolean),
    acts("load_best_model_at_end", Shape::boolean),
    acts("metric_for_best_model"),
    acts("greater_is_better", Shape::boolean),
    ignored("prediction_loss_only", Shape::boolean, "false", kOnlyLoss),
    ignored("eval_do_concat_batches", Shape::boolean, "true", kOnlyLoss),
    ignored("eval_use_gather_object", Shape::boolean, "false", kOnlyLoss),
    ignored("eval_accumulation_steps", Shape::word, "", kOnlyLoss),
    ignored("include_for_metrics", Shape::words, "", kOnlyLoss),
    ignored("include_inputs_for_metrics", Shape::boolean, "false", kOnlyLoss),
    ignored("batch_eval_metrics", Shape::boolean, "false", kOnlyLoss),
    ignored("use_legacy_prediction_loop", Shape::boolean, "false", kOnlyLoss),
    // checkpoints
    acts("save_strategy"),
    acts("save_steps", Shape::word, "below 1: a share of all steps"),
    acts("save_total_limit"),
    acts("save_only_model", Shape::boolean),
    acts("ignore_data_skip", Shape::boolean),
    ignored("save_safetensors", Shape::boolean, "true",
            "weights are always written as safetensors, which every version of transformers since 4.30 reads"),
    acts("checkpointing_steps", "save_steps", Shape::word, "run_clm_no_trainer.py: a number of steps, or epoch"),
    ignored("save_on_each_node", Shape::boolean, "false", "output_dir is one folder that all hosts share"),
    ignored("enable_jit_checkpoint", Shape::boolean, "false", "SIGTERM always writes a checkpoint"),
    ignored("restore_callback_states_from_checkpoint", Shape::boolean, "false",
            "a resumed run always restores its full state"),
    // Hugging Face's hub
    ignored("push_to_hub", Shape::boolean, "false", kHubFolder),
    ignored("hub_model_id", Shape::word, "", kNoUpload),
    ignored("hub_strategy", Shape::word, "every_save", kNoUpload),
    ignored("hub_token", Shape::word, "<hub_token>", kNoUpload),
    ignored("hub_private_repo", Shape::boolean, "false", kNoUpload),
    ignored("hub_always_push", Shape::boolean, "false", kNoUpload),
    ignored("hub_revision", Shape::word, "", kNoUpload),
    ignored("push_to_hub_model_id", Shape::word, "", kNoUpload),
    ignored("push_to_hub_organization", Shape::word, "", kNoUpload),
    ignored("push_to_hub_token", Shape::word, "<push_to_hub_token>", kNoUpload),
    // data
    acts("train_sampling_strategy"),
    acts("group_by_length", Shape::boolean, "version 4"),
    acts("dataloader_drop_last", Shape::boolean),
    ignored("dataloader_num_workers", Shape::word, "0", kLoader),
    ignored("dataloader_pin_memory", Shape::boolean, "true", kLoader),
    ignored("dataloader_persistent_workers", Shape::boolean, "false", kLoader),
    ignored("dataloader_prefetch_factor", Shape::word, "", kLoader),
    ignored("dataloader_multiprocessing_context", Shape::word, "", kLoader),
    ignored("dataloader_in_order", Shape::boolean, "true", kLoader),
    ignored("remove_unused_columns", Shape::boolean, "true", kRows),
    ignored("label_names", Shape::words, "", kRows),
    ignored("length_column_name", Shape::word, "length", "lengths are counted"),
    ignored("dispatch_batches", Shape::boolean, "", kShares),
    refused("split_batches", Shape::boolean, "false",
            "batch sizes are per process here: remove it and divide --per_device_train_batch_size by the number of "
            "processes"),
    // devices and distribution
    acts("use_cpu", "device", Shape::boolean, "--device cpu"),
    acts("no_cuda", "device", Shape::boolean, "version 4: --device cpu"),
    refused("use_mps_device", Shape::boolean, "false",
            "Apple's GPUs are not supported: remove it, or use --device cpu"),
    acts("tpu_num_cores", "xla_devices"),
    ignored("tpu_metrics_debug", Shape::boolean, "false", "these are torch_xla's metrics"),
    ignored("local_rank", Shape::word, "-1|0", "the rank comes from the launcher's environment"),
    acts("ddp_backend", "backend"),
    acts("ddp_timeout"),
    acts("ddp_bucket_cap_mb"),
    acts("ddp_find_unused_parameters", Shape::boolean),
    acts("ddp_broadcast_buffers", Shape::boolean),
    ignored("ddp_static_graph", Shape::boolean, "false", "the first step determines which parameters are used"),
    acts("fsdp", Shape::words,
         "full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, offload, auto_wrap; or a boolean"),
    acts("fsdp_config", Shape::object),
    acts("fsdp_min_num_params", "min_num_params", Shape::word, "version 4"),
    acts("fsdp_transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap", Shape::word, "version 4"),
    ignored("fsdp_use_orig_params", Shape::boolean, "true",
            "parameters keep their identity here, so every optimizer and every grouping works"),
    acts("deepspeed", Shape::object),
    refused("sharded_ddp", Shape::words, "",
            "transformers has removed FairScale as well: use --zero_stage 2 for simple and zero_dp_2, --fsdp "
            "full_shard for zero_dp_3"),
    acts("tp_size", "tp_size", Shape::word, "0, transformers 4's default: 1"),
    acts("parallelism_config", "strategy", Shape::object, "the sizes of the mesh"),
    acts("parallelism_config.dp_replicate_size", "strategy", Shape::word,
         "above 1: hybrid_shard, or ddp if nothing is sharded"),
    acts("parallelism_config.dp_shard_size", "shard_group_size", Shape::word, "times cp_size"),
    acts("parallelism_config.tp_size", "tp_size"),
    acts("parallelism_config.cp_size", "cp_size"),
    acts("parallelism_config.sp_size", "cp_size", Shape::word, "with cp_comm_type a2a"),
    ignored("parallelism_config.cp_backend", Shape::word, "torch", kChosen),
    ignored("parallelism_config.sp_backend", Shape::word, "deepspeed", kChosen),
    ignored("parallelism_config.tp_handler", Shape::object, "", kChosen),
    acts("parallelism_config.cp_handler", "cp_comm_type", Shape::object,
         "cp_comm_strategy: allgather is all_gather, alltoall (a ring in PyTorch) p2p"),
    ignored("parallelism_config.sp_handler", Shape::object, "", kChosen),
    acts("accelerator_config", "gradient_accumulation_steps", Shape::object, "gradient_accumulation_kwargs.num_steps"),
    refused("accelerator_config.split_batches", Shape::boolean, "false",
            "batch sizes are per process here: keep it false and divide --per_device_train_batch_size by the number of "
            "processes"),
    ignored("accelerator_config.dispatch_batches", Shape::boolean, "", kShares),
    ignored("accelerator_config.even_batches", Shape::boolean, "true", kShares),
    ignored("accelerator_config.use_seedable_sampler", Shape::boolean, "true", kShares),
    ignored("accelerator_config.non_blocking", Shape::boolean, "false", kLoader),
    ignored("accelerator_config.use_configured_state", Shape::boolean, "false",
            "there is one state, created from these arguments"),
    acts("accelerator_config.gradient_accumulation_kwargs", "gradient_accumulation_steps", Shape::object, "num_steps"),
    refused("mp_parameters", Shape::word, "{}", "SageMaker's model parallelism is not supported: remove it"),
    refused("xpu_backend", Shape::word, "", "Intel's GPUs are not supported: remove it"),
    ignored("ray_scope", Shape::word, "last", "hyper-parameter search is not supported"),
    ignored("debug", Shape::words, "", "a loss that is not finite is always reported with its step"),
    // run_clm.py, run_mlm.py: the model
    acts("model_name_or_path"),
    acts("model_type", "config_name", Shape::word, "without a model: train from scratch"),
    acts("config_name"),
    acts("config_overrides"),
    acts("tokenizer_name"),
    ignored("cache_dir", Shape::word, "", kLocal),
    ignored("model_revision", Shape::word, "main", kLocal),
    ignored("token", Shape::word, "", kLocal),
    ignored("use_auth_token", Shape::boolean, "false", kLocal),
    ignored("trust_remote_code", Shape::boolean, "false", "code in a model's folder is never executed"),
    ignored("use_fast_tokenizer", Shape::boolean, "true", "the only tokenizer is the fast one"),
    ignored("torch_dtype", Shape::word, "auto|float32", "trained weights stay fp32; --bf16 computes in bfloat16"),
    ignored("dtype", Shape::word, "auto|float32", "trained weights stay fp32; --bf16 computes in bfloat16"),
    ignored("attn_implementation", Shape::word, "", kFused),
    ignored("low_cpu_mem_usage", Shape::boolean, "false", "each process reads only its own part of the weights"),
    // the data
    acts("train_file", Shape::words),
    acts("validation_file", Shape::words),
    acts("validation_split_percentage"),
    acts("block_size"),
    acts("max_seq_length"),
    acts("max_length", "max_seq_length", Shape::word, "TRL"),
    acts("model_max_length", "max_seq_length", Shape::word, "Alpaca, FastChat, LLaVA, Qwen"),
    acts("lora_target_modules", Shape::words),
    acts("lora_modules_to_save", Shape::words, "TRL"),
    acts("use_rslora", Shape::boolean, "TRL"),
    acts("mlm_probability"),
    ignored("dataset_name", Shape::word, "", kDatasets),
    ignored("dataset_config_name", Shape::word, "", kDatasets),
    ignored("lazy_preprocess", Shape::boolean, "false", kLoader),
    ignored("flash_attn", Shape::boolean, "false", kFused),
    {{"q_lora", "load_in_4bit", Effect::acts, "FastChat; not given: bnb_4bit_use_double_quant true"},
     Shape::boolean,
     {},
     "FastChat"},
    {{"use_lora", "lora_r", Effect::acts,
      "Qwen; not given: lora_r 64, alpha 16, dropout 0.05, all-linear, as in its finetune.py"},
     Shape::boolean,
     {},
     "Qwen"},
    {{"lora_enable", "lora_r", Effect::acts, "LLaVA; not given: lora_r 64, alpha 16, dropout 0.05"},
     Shape::boolean,
     {},
     "LLaVA"},
    acts("image_folder", Shape::word, "LLaVA"),
    acts("image_aspect_ratio", Shape::word, "LLaVA; anyres is refused"),
    acts("version", Shape::word, "LLaVA"),
    acts("group_by_modality_length", Shape::boolean, "LLaVA"),
    ignored("is_multimodal", Shape::boolean, "false", "--vision_tower determines it"),
    refused("image_grid_pinpoints", Shape::word, "",
            "it is for image_aspect_ratio anyres (images in several parts), which is not implemented: remove it"),
    acts("vision_tower", Shape::word, "LLaVA"),
    acts("tune_mm_mlp_adapter", Shape::boolean, "LLaVA"),
    acts("freeze_backbone", Shape::boolean, "LLaVA"),
    acts("pretrain_mm_mlp_adapter", Shape::word, "LLaVA"),
    acts("freeze_mm_mlp_adapter", Shape::boolean, "LLaVA"),
    acts("mm_vision_select_layer", Shape::word, "LLaVA"),
    acts("mm_vision_select_feature", Shape::word, "LLaVA"),
    acts("mm_projector_type", Shape::word, "LLaVA"),
    acts("mm_projector_lr", Shape::word, "LLaVA"),
    refused("mm_use_im_start_end", Shape::boolean, "false",
            "special tokens around images are not implemented: remove it (LLaVA 1.5 is trained without them)"),
    ignored("mm_use_im_patch_token", Shape::boolean, "true", "the token that it adds to the vocabulary is never used"),
    refused("unfreeze_mm_vision_tower", Shape::boolean, "false", "the tower is not trained: remove it"),
    refused("mm_patch_merge_type", Shape::word, "flat", "it is for images in several parts, which are not implemented"),
    {{"bits", "load_in_4bit", Effect::acts, "LLaVA: 4, 8 (load_in_8bit) or 16; of 4, not given: double_quant true"},
     Shape::word,
     {},
     "LLaVA"},
    acts("double_quant", "bnb_4bit_use_double_quant", Shape::boolean, "LLaVA, QLoRA"),
    acts("quant_type", "bnb_4bit_quant_type", Shape::word, "LLaVA, QLoRA"),
    refused("preprocessed_path", Shape::word, "", kEncoderDecoder),
    // TRL
    of_trl(acts("use_peft", "lora_r", Shape::boolean, "not given: lora_r 16, alpha 32, dropout 0.05")),
    of_trl(acts("dataset_text_field", "text_column_name")),
    acts("chat_template"),
    of_trl(acts("chat_template_path", "chat_template")),
    maybe_trl(ignored("dataset_num_proc", Shape::word, "", "text is read by threads of the process")),
    ignored("padding_free", Shape::boolean, "false", "--packing fills rows instead of padding them"),
    maybe_trl(ignored("dataset_config", Shape::word, "", kDatasets)),
    of_trl(ignored("packing_strategy", Shape::word, "bfd", "there is only one packing strategy")),
    of_trl(ignored("eval_packing", Shape::boolean, "", "evaluation data is packed like training data")),
    of_trl(ignored("dataset_mixture", Shape::object, "", kDatasets)),
    of_trl(ignored("dataset_mixer", Shape::object, "", kDatasets)),
    of_trl(ignored("dataset_splits", Shape::words, "", kDatasets)),
    of_trl(ignored("dataset_configs", Shape::words, "", kDatasets)),
    of_trl(ignored("dataset_train_split", Shape::word, "", kDatasets)),
    of_trl(ignored("dataset_test_split", Shape::word, "", kDatasets)),
    of_trl(acts("dataset_streaming", "streaming", Shape::boolean)),
    ignored("env", Shape::object, "{}", "set variables in the program's environment"),
    of_trl(ignored("model_init_kwargs", Shape::object, "{}", "the model's folder determines it")),
    of_trl(ignored("dataset_kwargs", Shape::object, "{}", kRows)),
    acts("completion_only_loss", Shape::boolean, "TRL"),
    acts("eos_token", Shape::word, "TRL; must be the tokenizer's own"),
    ignored("pad_token", Shape::word, "", "padding is masked"),
    ignored("pad_to_multiple_of", Shape::word, "", "padding is masked"),
    ignored("truncation_mode", Shape::word, "keep_start", "long examples are truncated at the end"),
    ignored("activation_offloading", Shape::boolean, "false",
            "--gradient_checkpointing_kwargs offload_inputs_to=DIR keeps activations off the device"),
    ignored("lora_task_type", Shape::word, "causal_lm", "the model determines the task"),
    ignored("hub_model_revision", Shape::word, "", kNoUpload),
    acts("load_in_4bit", Shape::boolean),
    acts("load_in_8bit", Shape::boolean),
    acts("bnb_4bit_quant_type"),
    acts("bnb_4bit_use_double_quant", Shape::boolean),
    acts("use_bnb_nested_quant", "bnb_4bit_use_double_quant", Shape::boolean, "TRL"),
    acts("bnb_4bit_compute_dtype"),
    ignored("bnb_4bit_quant_storage", Shape::word, "",
            "it concerns how quantized bytes are stored in files and shards; here each process holds all of them"),
    refused("use_dora", Shape::boolean, "false", kAdapters),
    of_dpo(acts("beta", "preference_beta", Shape::word, "TRL")),
    of_dpo(acts("loss_type", "preference_loss", Shape::words,
                "TRL: sigmoid, hinge, ipo, simpo, orpo, apo_zero, apo_down; nll: no preferences")),
    // Not of_dpo: for users who mean label_smoothing_factor, a hint is given and no DPOTrainer defaults apply.
    acts("label_smoothing", "preference_label_smoothing", Shape::word, "TRL's DPO"),
    of_dpo(acts("rpo_alpha", "preference_sft_weight", Shape::word, "TRL's DPO")),
    of_dpo(acts("simpo_gamma", "preference_gamma", Shape::word, "TRL's CPO")),
    acts("max_prompt_length"),
    refused("max_completion_length", Shape::word, "",
            "answers have no separate limit: remove it; --max_length limits prompt and answer together"),
    ignored("precompute_ref_log_probs", Shape::boolean, "false", kReference),
    ignored("precompute_ref_batch_size", Shape::word, "", kReference),
    ignored("padding_value", Shape::word, "", "padding is masked"),
    ignored("label_pad_token_id", Shape::word, "-100", "padding is masked"),
    acts("disable_dropout", Shape::boolean, "TRL"),
    refused("reference_free", Shape::boolean, "false",
            "a constant reference is not implemented: remove it, or use --loss_type simpo"),
    refused("sync_ref_model", Shape::boolean, "false", "the reference is fixed: remove it"),
    refused(
        "cpo_alpha", Shape::word, "0",
        "CPO's loss is not implemented: remove it; with --preference_loss simpo it is called --preference_sft_weight"),
    refused("f_divergence_type", Shape::word, "reverse_kl", kNotOfPairs),
    refused("use_weighting", Shape::boolean, "false", kNotOfPairs),
    refused("ld_alpha", Shape::word, "1", kNotOfPairs),
    refused("loss_weights", Shape::words, "", kNotOfPairs),
    ignored("ref_model_mixup_alpha", Shape::word, "0.9|0.6", "it is for sync_ref_model"),
    ignored("ref_model_sync_steps", Shape::word, "64|512", "it is for sync_ref_model"),
    ignored("generate_during_eval", Shape::boolean, "false", kOnlyLoss),
    ignored("use_logits_to_keep", Shape::boolean, "false", "logits are computed only for the answers"),
    acts("max_train_samples"),
    acts("max_eval_samples"),
    refused("line_by_line", Shape::boolean, "false",
            "all lines form one text: remove it, or write a .jsonl with one {\"text\": ...} per line"),
    refused("keep_linebreaks", Shape::boolean, "true", "line breaks are kept: remove it, or remove them from the text"),
    ignored("pad_to_max_length", Shape::boolean, "false", "rows are padded to the longest of their batch"),
    acts("streaming", Shape::boolean),
    ignored("preprocessing_num_workers", Shape::word, "", "text is encoded by all threads"),
    ignored("overwrite_cache", Shape::boolean, "false",
            "cached tokens are keyed by content and settings, so they are never stale; tessera cache rm removes "
            "them"),
    // synonyms in other programs
    acts("model", "model_name_or_path", Shape::word, kSynonym),
    acts("base_model", "model_name_or_path", Shape::word, kSynonym),
    acts("model_id", "model_name_or_path", Shape::word, kSynonym),
    acts("tokenizer_name_or_path", "tokenizer_name", Shape::word, kSynonym),
    acts("dataset", "train_file", Shape::words, kSynonym),
    acts("dataset_path", "train_file", Shape::words, kSynonym),
    acts("data_files", "train_file", Shape::words, kSynonym),
    acts("train_data_path", "train_file", Shape::words, kSynonym),
    acts("train_file_dir", "train_file", Shape::words, kSynonym),
    acts("validation_file_dir", "validation_file", Shape::words, kSynonym),
    ignored("dataset_id_or_path", Shape::word, "", kDatasets),
    acts("eval_data_path", "validation_file", Shape::words, kSynonym),
    acts("max_seq_len", "max_seq_length", Shape::word, kSynonym),
    acts("cutoff_len", "max_seq_length", Shape::word, kSynonym),
    refused("source_max_len", Shape::word, "", kTwoLengths),
    refused("target_max_len", Shape::word, "", kTwoLengths),
    acts("num_epochs", "num_train_epochs", Shape::word, kSynonym),
    acts("num_warmup_steps", "warmup_steps", Shape::word, kSynonym),
    acts("lr_scheduler", "lr_scheduler_type", Shape::word, kSynonym),
    acts("lora_rank", "lora_r", Shape::word, kSynonym),
    acts("lora_dim", "lora_r", Shape::word, kSynonym),
    acts("peft_lora_r", "lora_r", Shape::word, kSynonym),
    acts("peft_lora_alpha", "lora_alpha", Shape::word, kSynonym),
    acts("target_modules", "lora_target_modules", Shape::words, kSynonym),
    acts("lora_target", "lora_target_modules", Shape::words, "the same; all: all-linear"),
    acts("use_qlora", "load_in_4bit", Shape::boolean, kSynonym),
    acts("use_4bit_quantization", "load_in_4bit", Shape::boolean, kSynonym),
    acts("use_8bit_quantization", "load_in_8bit", Shape::boolean, kSynonym),
    acts("dpo_beta", "preference_beta", Shape::word, kSynonym),
    {{"gamma_beta_ratio", "gamma_beta_ratio", Effect::acts,
      "SimPO; not given: preference_loss simpo, beta 2, no dropout"},
     Shape::word,
     {},
     "SimPO"},
    acts("strict", "unknown", Shape::boolean, "--unknown refuse"),
    // unrelated to training
    ignored("with_tracking", Shape::boolean, "false", kTracker),
    ignored("use_wandb", Shape::boolean, "false", kTracker),
    ignored("wandb_project", Shape::word, "", kTracker),
    ignored("wandb_entity", Shape::word, "", kTracker),
    ignored("wandb_run_name", Shape::word, "", kTracker),
    ignored("wandb_watch", Shape::word, "", kTracker),
    ignored("wandb_log_model", Shape::word, "", kTracker),
    ignored("expt_name", Shape::word, "", kTracker),
    ignored("deepspeed_activation_checkpointing", Shape::boolean, "false",
            "--gradient_checkpointing determines whether activations are recomputed"),
    ignored("plot_loss", Shape::boolean, "false", "report.html shows the curves"),
    ignored("use_flash_attn", Shape::boolean, "false", kFused),
    ignored("use_flash_attention", Shape::boolean, "false", kFused),
    ignored("use_flash_attention_2", Shape::boolean, "false", kFused),
    ignored("attn_impl", Shape::word, "", kFused),
    maybe_trl(ignored("use_liger", Shape::boolean, "false", kFused)),
    ignored("use_slow_tokenizer", Shape::boolean, "false", "the only tokenizer is the fast one"),
    ignored("preprocess_num_workers", Shape::word, "", "text is encoded by all threads"),
    ignored("dataset_batch_size", Shape::word, "1000", kAllThreads),
    ignored("num_of_sequences", Shape::word, "1024", kAllThreads),
    ignored("chars_per_token", Shape::word, "3.6", kAllThreads),
    ignored("gradient_checkpointing_use_reentrant", Shape::boolean, "", "there is one implementation of recomputation"),
    ignored("shuffle_dataset", Shape::boolean, "false", "--train_sampling_strategy chooses the order"),
};

}  // namespace

std::span<const KeyRow> training_args_rows() {
  static const std::vector<KeyRow> rows = [] {
    std::vector<KeyRow> all;
    for (const TrainingArgument& argument : arguments) all.push_back(argument.row);
    return all;
  }();
  return rows;
}

namespace {

/// "disable_flash_attn2" and "use_flash_attn" are similar only in spelling.
bool are_opposites(std::string_view a, std::string_view b) {
  const auto has = [](std::string_view name, std::string_view part) { return name.find(part) != name.npos; };
  return has(a, "unfreeze") != has(b, "unfreeze") || has(a, "disable") != has(b, "disable");
}

}  // namespace

std::optional<std::string> meant_by(const std::string& name, bool among_megatron) {
  static constexpr std::pair<std::string_view, std::string_view> others[] = {
      {"max_train_steps", "max_steps"},
      {"train_steps", "max_steps"},
      {"num_steps", "max_steps"},
      {"epochs", "num_train_epochs"},
      {"batch_size", "per_device_train_batch_size"},
      {"train_batch_size", "per_device_train_batch_size"},
      {"eval_batch_size", "per_device_eval_batch_size"},
      {"grad_accum", "gradient_accumulation_steps"},
      {"grad_accum_steps", "gradient_accumulation_steps"},
      {"wd", "weight_decay"},
      {"ref_model", "ref_model_name_or_path"},
      {"model_name", "model_name_or_path"},
      {"model_path", "model_name_or_path"},
      {"tokenizer", "tokenizer_name"},
      {"data", "train_file"},
      {"train_data", "train_file"},
      {"dataset_dir", "train_file"},
      {"seq_len", "block_size"},
      {"gpus", "num_processes"},
      {"accelerate_config", "config_file"},
      {"save_best_model", "load_best_model_at_end"},
      {"scheduler", "lr_scheduler_type"},
      {"moe_num_experts", "num_experts"},
      {"moe_top_k", "moe_router_topk"},
      {"precision", "bf16"},
      {"mixed_precision", "bf16"}};
  if (name.size() > 64) return std::nullopt;
  for (const auto& [theirs, ours] : others)
    if (name == theirs) return std::string(ours);
  if (const KeyRow* megatron = find_megatron_key(name); megatron != nullptr && !megatron->setting.empty())
    return std::string(megatron->setting);
  std::vector<std::string> names;
  for (const Field& field : fields()) names.emplace_back(field.name);
  for (const auto& [alias, ours] : aliases()) names.emplace_back(alias);
  for (const TrainingArgument& argument : arguments)
    if (argument.row.key.find('.') == std::string_view::npos) names.emplace_back(argument.row.key);
  if (among_megatron)
    for (const KeyRow& row : megatron_keys()) names.emplace_back(row.key);
  const auto near = nearest(name, names);
  return near && are_opposites(name, *near) ? std::nullopt : near;
}

std::optional<std::string> completed(std::string_view name) {
  std::set<std::string_view> found;
  if (name.size() < 4) return std::nullopt;
  for (const TrainingArgument& argument : arguments)
    if (argument.row.key.starts_with(name) && argument.row.why != kSynonym && argument.row.key.find('.') == name.npos)
      found.insert(argument.row.key);
  if (found.size() != 1) return std::nullopt;
  for (const Field& field : fields())
    if (field.name.starts_with(name)) found.insert(field.name);
  return found.size() == 1 ? std::optional<std::string>(*found.begin()) : std::nullopt;
}

const TrainingArgument* find_training_argument(std::string_view name) {
  const auto found = std::find_if(std::begin(arguments), std::end(arguments),
                                  [&](const TrainingArgument& argument) { return argument.row.key == name; });
  return found == std::end(arguments) ? nullptr : &*found;
}

}  // namespace tessera::config
