#pragma once
/// \file
/// Creates optimizers from the names and parameters of transformers' --optim, --adam_beta1, ... and --optim_args.

#include <tessera/base/value.h>
#include <tessera/config/sections/words.h>
#include <tessera/optim/elementwise_options.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::optim {

/// kind         parameters (--optim_args) and their defaults
/// adamw, adam  beta1, beta2, epsilon = the fields below; bias_correction = true
/// sgd          momentum, nesterov = the fields below
/// adagrad      lr_decay = 0, initial_accumulator_value = 0, eps = 1e-10
/// rmsprop      alpha = 0.99, eps = 1e-8, momentum = 0, centered = false
/// lion         beta1, beta2 = the fields below (as transformers passes them)
/// adafactor    eps1 = 1e-30, eps2 = 1e-3, clip_threshold = 1, decay_rate = -0.8, beta1 = 0, scale_parameter = false,
///              relative_step = false, warmup_init = false
/// lamb         beta1, beta2 = the fields below; eps = 1e-6, bias_correction = true, min_trust_ratio = 0,
///              max_trust_ratio = 0, adapt_undecayed = false
/// lars         momentum, nesterov = the fields below; trust_coefficient = 1e-3, eps = 1e-8, adapt_undecayed = false
/// muon         momentum = 0.95, nesterov = true, ns_steps = 5, ns_coefficients = simple (or quintic), scale_mode =
///              shape_scaling (or spectral, unit_rms_norm), extra_scale_factor = 1, ns_eps = 1e-7; embeddings, head and
///              vectors follow adamw
/// adamw_8bit, lion_8bit: the parameters of adamw and lion, with 8-bit states
struct OptimizerChoice {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< --adam_beta1, --adam_beta2, --adam_epsilon
  double momentum = 0;
  bool nesterov = false;
  std::vector<std::pair<std::string, Value>> parameters = {};
};

/// Throws InputError for an unknown parameter (with the nearest one), and the errors of the factory.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, std::vector<Slot> slots,
                                          const CommonOptions& common = {});
/// Returns the parameters of an elementwise optimizer; nullopt for other optimizers and for 8-bit states. Throws
/// InputError as make_optimizer().
std::optional<ElementwiseOptions> elementwise_options(const OptimizerChoice& choice);
/// Checks the choice before a run starts: throws the errors that make_optimizer() would throw for it.
void check_optimizer(const OptimizerChoice& choice, const CommonOptions& common = {});

}  // namespace tessera::optim
