#pragma once
/// \file
/// The type in which matrix products compute under nn::Autocast; empty: the type of their operands. Parameters that are
/// gathered in a narrow type (param_dtype) make the operands narrow already. A processor without instructions for the
/// type computes in fp32 (nn/autocast.h); precision_warning() reports it.

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
/// bf16_full_eval, else fp16_full_eval, else the precision of training.
std::optional<at::ScalarType> evaluation_precision(const RunConfig& config);
/// Returns a warning about a narrow type that this machine has no instructions for; empty if there is nothing to warn
/// about.
std::string precision_warning(const RunConfig& config, c10::DeviceType device);

}  // namespace tessera::train
