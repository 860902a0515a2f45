#pragma once
/// \file
/// Converts LibTorch's dtypes and our reductions to the enums of the reduction kernels (kernels/cpu/reduce.h).

#include <c10/core/ScalarType.h>

#include <tessera/comm/group.h>
#include <tessera/kernels/cpu/reduce.h>

#include <optional>

namespace tessera::comm {

/// nullopt for a dtype that can be moved but not reduced.
std::optional<kernels::Number> number_of(at::ScalarType dtype);

kernels::Fold fold_of(Reduction op);

}  // namespace tessera::comm
