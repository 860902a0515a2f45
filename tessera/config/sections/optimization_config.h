#pragma once
/// \file
/// Section "optimization" of a run's settings.

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <string>

namespace tessera {

/// Optimizer, schedule, batch sizes, losses, precision.
struct OptimizationConfig {
  OptimizerKind optim = OptimizerKind::adamw;  ///< see optim/by_name.h
  /// JSON object or "key=value,...": optimizer parameters without a setting of their own
  std::string optim_args;
  double learning_rate = 5e-5;   ///< peak of the schedule
  double decoupled_lr = -1;      ///< peak for word embeddings and the head; -1: learning_rate
  double decoupled_min_lr = -1;  ///< minimum for that group in schedules that have one; -1: the common minimum
  double mm_projector_lr = -1;   ///< peak for the projector of a vision-language model; -1: learning_rate
  double weight_decay = 0.0;     ///< `tessera train` exempts biases and norms
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;  ///< AdamW, Adam; Lion and LAMB use the betas
  double momentum = 0.0;                                             ///< sgd
  bool nesterov = false;                                             ///< sgd
  double label_smoothing_factor = 0;  ///< share of each target spread evenly over the vocabulary
  bool average_tokens_across_devices =
      true;                        ///< mean over the scored tokens of all ranks; false: mean of the ranks' means
  double neftune_noise_alpha = 0;  ///< noise on embeddings during training (Jain et al. 2023); 0: none
  PreferenceLoss preference_loss = PreferenceLoss::none;  ///< examples are (prompt, chosen, rejected)
  double preference_beta = 0.1;                           ///< weight of the log-probability differences
  double preference_label_smoothing = 0;                  ///< share of pairs assumed to have swapped labels
  double preference_sft_weight = 0;  ///< weight of the chosen answers' cross-entropy, added to the preference loss
  double preference_gamma = 0.5;     ///< simpo: target margin between chosen and rejected
  double gamma_beta_ratio = 0;       ///< if given, that margin as a multiple of preference_beta
  bool disable_dropout = false;      ///< overrides the model's config.json and lora_dropout
  double router_aux_loss_coef = -1;  ///< factor of the experts' balancing loss; -1: from config.json
  RouterLossForm router_aux_loss_form = RouterLossForm::layers_together;  ///< scope over which load is balanced
  double router_z_loss_coef = 0;                                          ///< factor of the routers' z-loss
  double router_bias_update_rate = 0;    ///< update step of e_score_correction_bias; 0: bias stays as loaded
  double mtp_loss_scaling_factor = 0.1;  ///< weight of the mean multi-token prediction loss
  double moe_capacity_factor = 0;        ///< expert capacity as a multiple of a micro-batch's mean load; 0: unlimited
  TokenDrop moe_token_drop_policy = TokenDrop::probs;  ///< which slots are dropped
  bool moe_pad_expert_input_to_capacity = false;       ///< pad each expert's input with zero rows up to its capacity
  /// tokens per rank and micro-batch, padding included; 0: batches are counted in rows
  std::int64_t tokens_per_batch = 0;
  bool balance_batches = false;                    ///< distribute the rows of a step by each rank's speed and memory
  std::string batch_size_schedule;                 ///< growth of the global batch: see layout/batch/ramp.h
  BatchRule learning_rate_rule = BatchRule::none;  ///< how learning_rate scales from learning_rate_batch_size
  std::int64_t learning_rate_batch_size = 0;       ///< rows per step that learning_rate was tuned for
  bool gradient_noise_scale = false;  ///< measure the gradient noise scale at every step (McCandlish et al. 2018)
  bool auto_find_batch_size = false;  ///< halve the batch per device until a step fits into memory
  bool full_determinism = false;      ///< use deterministic algorithms wherever there is a choice
  double max_grad_norm = 1.0;         ///< 0: no clipping
  ScheduleType lr_scheduler_type = ScheduleType::linear;  ///< formulas: optim/schedule.h
  std::string lr_scheduler_kwargs;                        ///< JSON object or "num_cycles=2,...": see Schedule
  std::int64_t warmup_steps = 0;                          ///< linear warm-up before the schedule
  double warmup_ratio = 0;                                ///< share of all steps; excludes warmup_steps
  std::int64_t max_steps = -1;                            ///< > 0 overrides num_train_epochs
  double num_train_epochs = 3.0;                          ///< passes over the training data; may be fractional
  double exit_duration_in_mins = 0;                       ///< minutes after which the run saves and stops; 0: never
  std::int64_t per_device_train_batch_size = 8;           ///< rows per rank and micro-batch
  std::int64_t per_device_eval_batch_size = 8;            ///< rows per rank and batch
  std::int64_t gradient_accumulation_steps = 1;           ///< micro-batches per step
  std::int64_t seed = 42;                                 ///< for initial weights, row order and dropout
  bool bf16 = false;  ///< matrix products in bfloat16; weights, gradients and optimizer states stay fp32
  bool fp16 = false;  ///< the same in float16, with loss scaling
  Fp8Format fp8_format = Fp8Format::none;                ///< round the operands of the blocks' linear layers to 8 bits
  Fp8Recipe fp8_recipe = Fp8Recipe::delayed;             ///< which values share a scale, and how it is computed
  std::int64_t fp8_amax_history_len = 1;                 ///< delayed: number of steps whose maxima are kept
  Fp8Amax fp8_amax_compute_algo = Fp8Amax::most_recent;  ///< delayed: which of the kept maxima sets the scale
  std::int64_t fp8_margin = 0;                           ///< scales are divided by 2^this
  std::int64_t num_layers_at_start_in_bf16 = 0;          ///< number of leading blocks excluded from fp8
  std::int64_t num_layers_at_end_in_bf16 = 0;            ///< number of trailing blocks excluded from fp8
  std::string compression_training;       ///< JSON: which weights and inputs are quantized (rules/compression.h)
  std::string progressive_layer_drop;     ///< JSON: blocks are skipped at random (rules/block_routing.h)
  std::string data_efficiency;            ///< JSON: tokens skip some blocks (rules/block_routing.h)
  double loss_scale = 0;                  ///< fp16: a fixed scale; 0: dynamic
  std::int64_t initial_scale_power = 16;  ///< dynamic: initial scale 2^this (PyTorch: 65536)
  std::int64_t loss_scale_window =
      2000;                     ///< dynamic: steps without overflow before it doubles (PyTorch; DeepSpeed: 1000)
  double min_loss_scale = 1;    ///< dynamic: below this scale the run ends (DeepSpeed; PyTorch has no bound)
  std::int64_t hysteresis = 1;  ///< dynamic: overflows in a row before the scale falls (PyTorch: 1; DeepSpeed: 2)
  bool consecutive_hysteresis = false;  ///< dynamic: a good step restores the hysteresis (DeepSpeed)
  double gradient_predivide_factor =
      1;                        ///< gradients are divided by it before the sum over ranks, and by ranks / it afterwards
  bool bf16_full_eval = false;  ///< evaluate with bfloat16 weights
  bool fp16_full_eval = false;  ///< evaluate with float16 weights
  bool bf16_optimizer_states = false;         ///< store optimizer moments in bfloat16
  bool stochastic_rounding = true;            ///< round bfloat16 moments stochastically
  bool gradient_checkpointing = false;        ///< keep only the blocks' inputs and recompute the rest in backward
  std::string gradient_checkpointing_kwargs;  ///< JSON object or "every=2,..."
};

}  // namespace tessera
