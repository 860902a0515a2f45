#pragma once
/// \file
/// Optimizers that update each element by itself, for those who compute the update elsewhere than optimizer.h does.

#include <tessera/optim/optimizer.h>

#include <variant>

namespace tessera::optim {

/// make_adam()'s.
struct AdamOptions : AdamWOptions {};

/// The numbers of make_adamw(), make_adam(), make_sgd(), make_adagrad(), make_rmsprop() or make_lion(), which say what
/// each computes and what its states are called.
using ElementwiseOptions =
    std::variant<AdamWOptions, AdamOptions, SgdOptions, AdagradOptions, RmspropOptions, LionOptions>;

}  // namespace tessera::optim
