#pragma once
/// \file
/// Parameters of elementwise optimizers, for code that computes the update itself instead of using optimizer.h.

#include <tessera/optim/optimizer.h>

#include <variant>

namespace tessera::optim {

/// make_adam()'s.
struct AdamOptions : AdamWOptions {};

/// The parameters of make_adamw(), make_adam(), make_sgd(), make_adagrad(), make_rmsprop() or make_lion(); see these
/// functions for the formulas and the names of the states.
using ElementwiseOptions =
    std::variant<AdamWOptions, AdamOptions, SgdOptions, AdagradOptions, RmspropOptions, LionOptions>;

}  // namespace tessera::optim
