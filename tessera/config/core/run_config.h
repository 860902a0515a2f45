#pragma once
/// \file
/// config/core/: RunConfig, the table of its settings, and how flags and files become one checked configuration.
///
/// config/: one RunConfig, however the user said it. This header: the values of a run, as plain data.
/// Names are Hugging Face's (run_clm.py, TrainingArguments). Front ends (flags, variables, files of ours and of others)
/// fill it through the table in fields.h, which also holds help texts, ranges and origins. Nothing here acts.

#include <tessera/config/core/words.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The model, its tokenizer, LoRA and what frozen weights are kept as.
struct ModelConfig {
  std::string model_name_or_path;      ///< Hugging Face folder to start from; empty: from scratch
  std::string config_name;             ///< config.json, or a preset (gpt2, gpt2-tiny): from scratch
  std::string config_overrides;        ///< "n_layer=4,n_embd=256", only with config_name
  std::string ref_model_name_or_path;  ///< reference of preference losses; empty: the model as it is at the start
  std::string tokenizer_name;  ///< folder or tokenizer.json; "byte" needs no file; empty: model folder's, else byte
  std::int64_t lora_r = 0;     ///< rank of the LoRA adapters (Hu et al. 2021); 0: train all weights
  double lora_alpha = 16;      ///< adapters are scaled by lora_alpha / lora_r
  bool use_rslora = false;     ///< or by lora_alpha / sqrt(lora_r) (Kalajdzievski 2023)
  double lora_dropout = 0;     ///< share of the adapters' inputs that is dropped in training
  std::string
      lora_target_modules;  ///< "q_proj,v_proj" (ends of names), a pattern or "all-linear"; empty: PEFT's for the model
  std::string lora_modules_to_save;  ///< "lm_head": ends of names of modules that are trained whole beside them
  bool lora_merge = false;           ///< at the end, also the merged model in OUT/merged
  bool load_in_4bit = false;         ///< the frozen weights of the blocks' linear maps take four bits each
  bool load_in_8bit = false;         ///< or eight
  QuantType bnb_4bit_quant_type = QuantType::nf4;  ///< four bits: which numbers they stand for
  bool bnb_4bit_use_double_quant = false;          ///< four bits: the scales of their blocks take eight bits each
  ComputeType bnb_4bit_compute_dtype = ComputeType::automatic;  ///< what products with them compute in
  // Images (docs/vision.md); the names are LLaVA's.
  std::string vision_tower;                  ///< folder of CLIP, whose vision part the language model gets
  std::string pretrain_mm_mlp_adapter;       ///< weights that the projector begins with
  std::string mm_projector_type = "linear";  ///< linear, or mlpNx_gelu
  std::int64_t mm_vision_select_layer = -1;  ///< hidden states of the tower that are taken
  std::string mm_vision_select_feature =
      "patch";                         ///< patch: states of patches alone; cls_patch: the class token's, too
  bool tune_mm_mlp_adapter = false;    ///< the projector alone is trained
  bool freeze_backbone = false;        ///< the language model is not trained
  bool freeze_mm_mlp_adapter = false;  ///< the projector is not trained
  // Maximal update parameterization (docs/large_batches.md); of models from scratch, whose config.json gets them.
  bool use_mup = false;                   ///< learning rates found for a narrow model hold for wider ones
  std::int64_t mup_base_hidden_size = 0;  ///< width of the narrow one; 0: this model's own
  double mup_embedding_mult = 1;          ///< factor of the embeddings
  double mup_output_mult = 1;             ///< factor of the logits; 1: base width / width
  double mup_base_head_dim = 0;           ///< scores are multiplied by the root of this; 0: by 1
  double mup_attn_scale_power = 1;        ///< and divided by the size of a head to this power
};

/// What is trained and evaluated on, and how it becomes rows.
struct DataConfig {
  /// Files, folders and patterns, with weights between them or without: corpus/data_list.h.
  std::string train_file;       ///< .txt, .jsonl (text | prompt, completion | messages), or .bin with .idx beside it
  std::string validation_file;  ///< same kinds; empty: split off train_file
  BlendMode blend_mode = BlendMode::all_exhausted;  ///< when an epoch of parts with weights ends
  std::string data_cache_dir;                       ///< tokens of text, made once for all runs; "none": at every start
  bool streaming = false;                           ///< tokens are made while the run goes on
  std::int64_t streaming_buffer = 10'000;           ///< rows of a rank among which a streamed order is shuffled
  double validation_split_percentage = 5;           ///< share of train_file, without a validation_file
  std::int64_t block_size = 0;                      ///< tokens per block T; 0: min(1024, the model's positions)
  SamplingStrategy train_sampling_strategy = SamplingStrategy::random;  ///< group_by_length: examples of .jsonl
  bool group_by_length = false;                                         ///< Hugging Face's older name of that strategy
  bool group_by_modality_length = false;                                ///< LLaVA's name of the other one
  // Images and LLaVA's conversations (docs/vision.md).
  std::string image_folder;                                        ///< the folder that the names of images are in
  ImageAspectRatio image_aspect_ratio = ImageAspectRatio::square;  ///< what is done to images that are no squares
  std::string version;  ///< LLaVA's template of conversations; empty: vicuna_v1 for records with images
  std::string text_column_name = "text";  ///< field of a .jsonl line that holds plain text
  std::string column_map;                 ///< "prompt=question,completion=answer": what the file calls a field
  std::string chat_template;              ///< Jinja text or a file of it; empty: the tokenizer's
  std::string eos_token;                  ///< what ends a text, which the tokenizer must say itself; empty: it does
  std::int64_t max_train_samples = 0;     ///< rows that are trained on, the first ones; 0: all
  std::int64_t max_eval_samples = 0;      ///< the same of those that are evaluated
  bool reset_position_ids = false;        ///< documents inside a block do not see each other; else a block is one
  std::int64_t max_seq_length = 0;        ///< tokens per example of a .jsonl, longer ones are cut; 0: block_size
  std::int64_t max_prompt_length = 0;     ///< tokens kept of a prompt, its last ones; 0: no bound of its own
  bool mock_data = false;                 ///< rows of made-up tokens in place of files, as Megatron-LM's --mock-data
  bool packing = false;              ///< several examples in one row, which do not see each other; else rows are padded
  bool assistant_only_loss = true;   ///< only what the assistant says in `messages` is scored
  bool completion_only_loss = true;  ///< a prompt before a completion is not scored
  double mlm_probability = 0.15;     ///< masked language models: share of the tokens that are to be guessed
  // Fill in the middle (data/fill_in_middle.h), with Megatron-LM's names and defaults.
  bool fim_data = false;                          ///< texts of blocks become prefix, suffix and middle
  double fim_rate = 0.5;                          ///< share of the texts that are rearranged
  double fim_spm_rate = 0.5;                      ///< share of those that begin with the suffix
  std::string fim_split_sample;                   ///< token between the fragments of a text; empty: texts are whole
  double fim_fragment_rate = -1;                  ///< with it: the rate of fragments; -1: not given
  std::string fim_no_prefix;                      ///< what begins with this stays as it is; empty: nothing does
  std::string fim_prefix_token = "<fim_prefix>";  ///< the token before the prefix,
  std::string fim_middle_token = "<fim_middle>";  ///< before the middle,
  std::string fim_suffix_token = "<fim_suffix>";  ///< before the suffix,
  std::string fim_pad_token = "<fim_pad>";        ///< what fills a row that became shorter,
  std::string fim_eod_token = "<|endoftext|>";    ///< and what ends a text
  std::int64_t data_seed = -1;                    ///< orders the rows; -1: seed
  bool dataloader_drop_last = false;              ///< an epoch's last step that is not whole is left out
};

/// Optimizer, schedule, batch sizes, losses, precision.
struct OptimizationConfig {
  OptimizerKind optim = OptimizerKind::adamw;  ///< optim/by_name.h: how each is made
  std::string optim_args;        ///< JSON object or "key=value,...": parameters of the optimizer that have no setting
  double learning_rate = 5e-5;   ///< the peak of the schedule
  double decoupled_lr = -1;      ///< the peak for embeddings of words and the head; -1: learning_rate
  double decoupled_min_lr = -1;  ///< where that ends, of schedules with a least rate; -1: as all others
  double mm_projector_lr = -1;   ///< the peak for the projector of a model that sees images; -1: learning_rate
  double weight_decay = 0.0;     ///< in `tessera train` biases and norms have none
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;  ///< AdamW, Adam; Lion and LAMB take the betas
  double momentum = 0.0;                                             ///< sgd
  bool nesterov = false;                                             ///< sgd
  double label_smoothing_factor = 0;  ///< share of each target spread evenly over the vocabulary
  bool average_tokens_across_devices =
      true;  ///< one mean over the scored tokens of all ranks; false: the mean of the ranks' means
  double neftune_noise_alpha = 0;  ///< noise on embeddings in training (Jain et al. 2023); 0: none
  PreferenceLoss preference_loss = PreferenceLoss::none;  ///< examples are (prompt, chosen, rejected)
  double preference_beta = 0.1;                           ///< weight of the differences of log-probabilities
  double preference_label_smoothing = 0;  ///< share of the pairs whose labels are taken to be the wrong way round
  double preference_sft_weight = 0;       ///< weight of the chosen answers' cross-entropy beside the preference loss
  double preference_gamma = 0.5;          ///< simpo: margin by which the chosen answer is to be better
  double gamma_beta_ratio = 0;            ///< given: that margin as a multiple of preference_beta
  bool disable_dropout = false;           ///< whatever the model's config.json and lora_dropout say
  double router_aux_loss_coef = -1;       ///< factor of the balancing loss of experts; -1: as config.json says
  RouterLossForm router_aux_loss_form = RouterLossForm::layers_together;  ///< whose load it keeps even
  double router_z_loss_coef = 0;                                          ///< factor of the routers' z-loss
  double router_bias_update_rate = 0;    ///< step of e_score_correction_bias towards an even load; 0: as loaded
  double mtp_loss_scaling_factor = 0.1;  ///< weight of the mean loss of multi-token prediction beside the main loss
  double moe_capacity_factor = 0;        ///< slots of an expert, in means of a micro-batch; 0: all (nothing is dropped)
  TokenDrop moe_token_drop_policy = TokenDrop::probs;  ///< whose slots are dropped
  bool moe_pad_expert_input_to_capacity = false;  ///< experts that fewer want get rows of zeros up to their capacity
  std::int64_t tokens_per_batch = 0;  ///< tokens of a rank's micro-batch, padding counted; 0: rows are counted instead
  bool balance_batches = false;       ///< rows of a step are given to ranks by the speed and memory of each
  std::string batch_size_schedule;    ///< how the global batch grows: layout/batch/ramp.h has the two forms
  BatchRule learning_rate_rule = BatchRule::none;  ///< how learning_rate follows from that of learning_rate_batch_size
  std::int64_t learning_rate_batch_size = 0;       ///< rows per step for which learning_rate was found
  bool gradient_noise_scale = false;               ///< measured at every step (McCandlish et al. 2018)
  bool auto_find_batch_size = false;               ///< halve the batch per device until a step fits into memory
  bool full_determinism = false;                   ///< every choice that can be deterministic is
  double max_grad_norm = 1.0;                      ///< 0: no clipping
  ScheduleType lr_scheduler_type = ScheduleType::linear;  ///< formulas: optim/schedule.h
  std::string lr_scheduler_kwargs;                        ///< JSON object or "num_cycles=2,...": see Schedule
  std::int64_t warmup_steps = 0;                          ///< linear warm-up, before the schedule itself
  double warmup_ratio = 0;                                ///< share of all steps; only one of the two is given
  std::int64_t max_steps = -1;                            ///< > 0 overrides num_train_epochs
  double num_train_epochs = 3.0;                          ///< passes over the training data, or a part of one
  double exit_duration_in_mins = 0;              ///< so long after its start the run is saved and stopped; 0: never
  std::int64_t per_device_train_batch_size = 8;  ///< rows per rank and micro-batch
  std::int64_t per_device_eval_batch_size = 8;   ///< rows per rank and batch
  std::int64_t gradient_accumulation_steps = 1;  ///< micro-batches of a step
  std::int64_t seed = 42;                        ///< for initial weights, order of rows, dropout
  bool bf16 = false;  ///< matrix products in bfloat16; weights, gradients and optimizer states stay fp32
  bool fp16 = false;  ///< the same in float16, with loss scaling
  Fp8Format fp8_format = Fp8Format::none;                ///< operands of the blocks' linear maps are rounded to 8 bits
  Fp8Recipe fp8_recipe = Fp8Recipe::delayed;             ///< which values share a scale, and what it is
  std::int64_t fp8_amax_history_len = 1;                 ///< delayed: so many steps' largest values are remembered
  Fp8Amax fp8_amax_compute_algo = Fp8Amax::most_recent;  ///< delayed: which of them counts
  std::int64_t fp8_margin = 0;                           ///< scales are divided by 2^this
  std::int64_t num_layers_at_start_in_bf16 = 0;          ///< the first so many blocks are left out of fp8
  std::int64_t num_layers_at_end_in_bf16 = 0;            ///< the last so many, too
  std::string compression_training;    ///< JSON: which weights and inputs are rounded to few bits (rules/compression.h)
  std::string progressive_layer_drop;  ///< JSON: blocks are left out at random (rules/block_routing.h)
  std::string data_efficiency;         ///< JSON: tokens pass by some blocks (rules/block_routing.h)
  double loss_scale = 0;               ///< fp16: a fixed scale; 0: dynamic
  std::int64_t initial_scale_power = 16;  ///< dynamic: begins with 2^this (PyTorch: 65536)
  std::int64_t loss_scale_window =
      2000;                     ///< dynamic: doubled after so many steps without overflow (PyTorch; DeepSpeed: 1000)
  double min_loss_scale = 1;    ///< dynamic: below it the run ends (DeepSpeed; PyTorch has no bound)
  std::int64_t hysteresis = 1;  ///< dynamic: overflows in a row before the scale falls (PyTorch: 1; DeepSpeed: 2)
  bool consecutive_hysteresis = false;  ///< dynamic: a good step restores the hysteresis (DeepSpeed)
  double gradient_predivide_factor =
      1;                        ///< gradients are divided by it before the sum over ranks, and by ranks / it after
  bool bf16_full_eval = false;  ///< evaluation with weights in bfloat16
  bool fp16_full_eval = false;  ///< the same in float16
  bool bf16_optimizer_states = false;         ///< moments in bfloat16
  bool stochastic_rounding = true;            ///< rounds bfloat16 moments at random
  bool gradient_checkpointing = false;        ///< blocks keep their inputs only; backward computes the rest again
  std::string gradient_checkpointing_kwargs;  ///< JSON object or "every=2,..."
};

/// The processes: how they divide the work, find each other and notice that one is gone.
struct ParallelConfig {
  std::int64_t num_processes = 0;  ///< 0: not given (one process, or what the launcher's environment says)
  // The mesh of these processes: see config/core/mesh.h.
  std::int64_t pp_size = 1;  ///< processes that divide the layers among them, one after the other (pipeline parallel)
  std::string pipeline_schedule = "1f1b";     ///< a name of layout/schedule/table.h, or a file of a schedule
  std::int64_t pipeline_stages_per_rank = 0;  ///< v; 0: the fewest that the schedule takes
  std::int64_t pipeline_group_size = 0;       ///< what interleaved schedules take (schedule::Shape::group_size)
  std::string pipeline_layout = "";           ///< a layout string or a word of layout/stages.h; "": even
  PipelineGather pipeline_gather = PipelineGather::per_micro_batch;  ///< for strategies that divide parameters
  std::int64_t tp_size = 1;        ///< processes that divide each layer among them (tensor parallel)
  std::int64_t cp_size = 1;        ///< processes that divide each sequence among them (context parallel)
  std::int64_t ep_size = 1;        ///< processes that divide experts among them (expert parallel)
  std::int64_t etp_size = 0;       ///< those that divide each expert among them; 0: as tp_size
  bool sequence_parallel = false;  ///< with tp_size > 1: norms and dropout work on parts of the sequence, too
  bool tp_comm_overlap = false;    ///< TensorParallelOptions::overlap_products
  layout::ContextMethod cp_comm_type =
      layout::ContextMethod::p2p;  ///< how attention sees the other parts of a sequence
  std::int64_t cp_a2a_size =
      0;  ///< a2a+p2p: neighbours along cp that exchange heads; 0: the fewest that divide cp_size
  std::string backend = "auto";  ///< auto | local | shm | gloo | nccl | hier (shm inside a host, gloo or nccl across)
  bool deterministic_reduce = false;  ///< gradients are summed in the order of the logical shards (docs/strategies.md)
  std::int64_t logical_shards = 0;    ///< micro-batches of a step, over all processes; 0: processes x accumulation
  std::int64_t max_restarts = 0;      ///< times that the job is restarted from its newest checkpoint after a failure
  double hang_timeout = 0;            ///< seconds of sleep without progress that end a job; 0: 300; negative: never
  double ddp_bucket_cap_mb = 25;      ///< MiB of gradients that are reduced together
  bool ddp_find_unused_parameters = false;  ///< true: parameters may take no part in a step
  bool ddp_broadcast_buffers = true;        ///< rank 0's, for everyone after each reduction
  double ddp_timeout = 1800;                ///< seconds a collective may take
  std::int64_t main_process_port = 0;       ///< 0: any free port
  std::int64_t threads_per_process = 0;     ///< 0: cores / local ranks, at least 1
};

/// Which of {optimizer states, gradients, parameters} are divided over ranks, and how. Data-parallel training as such
/// (ddp) is the strategy that divides nothing. See config/core/sharding.h for what follows from which words.
struct ShardingConfig {
  std::string fsdp;                      ///< Hugging Face's words: "full_shard auto_wrap offload"
  std::string fsdp_config;               ///< JSON or YAML file, or a JSON object: see config/accelerate/fsdp_config.h
  std::int64_t zero_stage = -1;          ///< DeepSpeed's number, 0 to 3; -1: not given
  Strategy strategy = Strategy::ddp;     ///< what all of these end in
  bool auto_strategy = false;            ///< "--strategy auto": the planner chooses strategy and mesh at the start
  std::int64_t auto_min_batch_size = 1;  ///< auto_strategy: the fewest rows of a micro-batch that it may choose,
  std::int64_t auto_max_batch_size = 0;  ///< and the most; 0: any number
  MemoryCheck memory_check = MemoryCheck::refuse;  ///< what becomes of a run that the planner says cannot fit
  std::int64_t shard_group_size = 0;    ///< ranks that share one set of shards; 0: all (hybrid: those of a host)
  Offload cpu_offload = Offload::none;  ///< what lies in files instead of memory
  std::string offload_folder;           ///< offloaded memory is mapped from its files (CPU); empty: TMPDIR
  AutoWrap auto_wrap_policy = AutoWrap::transformer_based;  ///< which modules are gathered and dropped as one
  std::string transformer_layer_cls_to_wrap;  ///< "GPT2Block,...", ours or Hugging Face's; empty: the model's blocks
  std::int64_t min_num_params = 100'000'000;  ///< size_based_wrap
  std::string wrap_pattern;                   ///< regex_wrap: of whole module names
  std::string ignored_modules;                ///< pattern of whole module names that stay out of all units
  layout::BackwardPrefetch backward_prefetch = layout::BackwardPrefetch::pre;  ///< when backward gathers the next unit
  bool forward_prefetch = true;                      ///< gather the next unit while one computes
  bool limit_all_gathers = true;                     ///< at most one unit is gathered ahead
  Choice reshard_after_forward = Choice::automatic;  ///< auto: the strategy's
  std::int64_t persistence_threshold = 0;            ///< parameters of at most so many elements stay whole
  std::int64_t reduce_bucket_size = 0;               ///< elements; 0: as ddp_bucket_cap_mb says
  bool overlap_comm = true;                          ///< false: every collective is waited for at once
  bool sync_module_states = true;                    ///< rank 0's parameters and buffers for all, at the start
  bool cpu_ram_efficient_loading = true;             ///< each rank reads its own part of the weights only
  FloatType param_dtype = FloatType::fp32;           ///< gathered parameters have it
  FloatType reduce_dtype = FloatType::fp32;          ///< gradients travel in it
  FloatType buffer_dtype = FloatType::fp32;          ///< floating-point buffers have it
  bool data_dependent = false;                       ///< ranks may skip modules or call them in another order
  std::string grad_compression =
      "none";  ///< none | fp16 | bf16 | powersgd:rank=2 | topk:ratio=0.01 | onebit:warmup=100
};

/// What a run writes and when: log lines, metrics, checkpoints, evaluations.
struct OutputConfig {
  std::string output_dir;                       ///< required by train
  bool overwrite_output_dir = false;            ///< replace the run in output_dir; what no run has written stays
  std::string resume_from_checkpoint;           ///< folder, "last" (newest in output_dir), "auto" (or from the start)
  double logging_steps = 500;                   ///< below 1: a share of all steps
  bool logging_first_step = false;              ///< log the first step, too
  Interval logging_strategy = Interval::steps;  ///< when log lines are written
  bool logging_nan_inf_filter = true;  ///< a loss that is not finite counts as the mean of the others in log lines
  std::string run_name;                ///< in the report and TensorBoard; empty: the name of output_dir
  CountedTokens include_num_input_tokens_seen = CountedTokens::no;  ///< in the log lines
  LogFormat log_format = LogFormat::hf;                             ///< how lines on standard output look
  std::string report_to = "tensorboard";             ///< trackers with commas between them, or none: reports_to()
  std::string metrics_file;                          ///< newest numbers in Prometheus' text form; empty: none
  std::int64_t metrics_port = 0;                     ///< the same at http://127.0.0.1:PORT/metrics; 0: none
  std::string logging_dir;                           ///< TensorBoard events; empty: OUT/runs
  bool hf_loss_scale = false;                        ///< report loss x (T-1)/T, as transformers' Trainer does
  SaveStrategy save_strategy = SaveStrategy::steps;  ///< when checkpoints are written
  double save_steps = 500;                           ///< below 1: a share of all steps
  std::int64_t save_total_limit = 0;                 ///< 0: keep all
  bool save_only_model = false;                      ///< checkpoints without optimizer state: they cannot be resumed
  StateDictType save_state_dict_type = StateDictType::sharded;  ///< every rank writes its part, or rank 0 all of it
  bool async_save = true;                          ///< the step goes on while a sharded checkpoint is written
  WhenBusy async_save_when_busy = WhenBusy::wait;  ///< the fate of a checkpoint that is due meanwhile
  std::int64_t checkpoint_in_memory =
      0;                          ///< steps between copies in memory, which survive the death of a process; 0: none
  bool ignore_data_skip = false;  ///< a resumed run starts its epoch's data again
  Interval eval_strategy = Interval::no;         ///< when the model is evaluated
  double eval_steps = 0;                         ///< 0: logging_steps; below 1: a share of all steps
  bool eval_on_start = false;                    ///< evaluate before the first step, too
  double eval_delay = 0;                         ///< steps (eval_strategy steps) or epochs before the first evaluation
  bool do_eval = false;                          ///< evaluate after the training
  bool load_best_model_at_end = false;           ///< the final export is the best checkpoint by metric_for_best_model
  std::string metric_for_best_model;             ///< empty: loss
  Choice greater_is_better = Choice::automatic;  ///< auto: false for losses
  NanPolicy nan_policy = NanPolicy::stop;        ///< the fate of a step whose loss or gradients are not finite
  std::int64_t nan_skip_limit = 10;              ///< skip: so many such steps in a row; one more ends the run
  std::int64_t check_replicas_steps = 100;  ///< steps between comparisons of what several ranks hold whole; 0: never
  bool disable_tqdm = false;                ///< no progress line
  bool profile = false;                     ///< write OUT/trace.json: a Chrome trace with a row per rank
  bool model_card = true;                   ///< OUT/README.md beside the finished model
  bool sigterm_is_success = false;          ///< after SIGTERM and saving the exit code is 0, not 3
};

/// Whether report_to names the tracker: "tensorboard", "mlflow" or "csv". metrics.jsonl and report.html are always
/// written.
inline bool reports_to(const OutputConfig& output, std::string_view tracker) {
  return ("," + output.report_to + ",").find("," + std::string(tracker) + ",") != std::string::npos;
}

/// Files of other systems (and ours) that describe the run: see config/core/front_ends.h.
struct FilesConfig {
  std::string config;          ///< our own: YAML or JSON with settings by name, in sections or not
  std::string config_file;     ///< accelerate's YAML or JSON
  std::string deepspeed;       ///< DeepSpeed's JSON: path, JSON object or base64
  std::string args_file;       ///< a .json, .yaml or .args of TrainingArguments, given without a flag
  Compat compat = Compat::v5;  ///< whose defaults TrainingArguments have where versions differ
  UnknownWords unknown = UnknownWords::automatic;  ///< what becomes of unknown keys and arguments
};

/// All settings of a run, in the sections of --print_config.
struct RunConfig {
  FilesConfig files;                ///< files that describe the run
  ModelConfig model;                ///< what is trained
  DataConfig data;                  ///< on what
  OptimizationConfig optimization;  ///< how its weights change
  ParallelConfig parallel;          ///< by which processes
  ShardingConfig sharding;          ///< what of the states they divide
  OutputConfig output;              ///< what is written, and when
  Device device = Device::cpu;      ///< cuda needs the plug-in
};

}  // namespace tessera
