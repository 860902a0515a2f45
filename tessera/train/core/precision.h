#pragma once
/// \file
/// What matrix products compute in under nn::Autocast; empty: in the type of their operands. Where parameters are
/// gathered in a narrow type (param_dtype) the operands are narrow already. A processor without instructions for the
/// type computes in fp32 (nn/autocast.h), which precision_warning() says.

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

/// bf16, else fp16.
std::optional<at::ScalarType> training_precision(const RunConfig& config);
/// bf16_full_eval, else fp16_full_eval, else what training has.
std::optional<at::ScalarType> evaluation_precision(const RunConfig& config);
/// A narrow type of the run that this machine has no instructions for, as a warning; empty: none.
std::string precision_warning(const RunConfig& config, c10::DeviceType device);

}  // namespace tessera::train
