#pragma once
/// \file
/// A module that reports the types in which it computes.

#include <tests/faces/loop.h>

namespace tessera::testing {

struct TypesSeen : SimpleModel {
  at::ScalarType weights = at::kDouble, input = at::kDouble;  ///< types in the last forward
  at::Tensor forward(at::Tensor x) override {
    weights = parameters().at(0).scalar_type();
    input = x.scalar_type();
    return SimpleModel::forward(x);
  }
};

}  // namespace tessera::testing
