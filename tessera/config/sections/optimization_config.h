#pragma once
/// \file
/// Section "optimization" of a run's settings.

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <string>

namespace tessera {

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

}  // namespace tessera
