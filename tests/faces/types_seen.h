#pragma once
/// \file
/// A module that says in which types it computes.

#include <tests/faces/loop.h>

namespace tessera::testing {

struct TypesSeen : SimpleModel {
  at::ScalarType weights = at::kDouble, input = at::kDouble;  ///< what the last forward met
  at::Tensor forward(at::Tensor x) override {
    weights = parameters().at(0).scalar_type();
    input = x.scalar_type();
    return SimpleModel::forward(x);
  }
};

}  // namespace tessera::testing
