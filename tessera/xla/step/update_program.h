#pragma once
/// \file
/// The programs that end a step on this device's parts: the gradients' norm, and AdamW.

#include <tessera/xla/compiled_step.h>
#include <tessera/xla/step/flat_units.h>

#include <string>
#include <vector>

namespace tessera::xla {

/// Arguments: accumulated gradients of trained units. Results: the norm over all devices; not `shard`: before it the
/// gradients (donated), summed over the devices.
std::string norm_program(const std::vector<FlatUnit>& units, int devices, bool shard);

/// Arguments: for each trained unit its parameters, first and second moments and gradients (all donated); scalars:
/// learning rate, factor of the gradients, 1 / (1 - beta1^t), 1 / (1 - beta2^t). Results: the same without the scalars,
/// gradients as zeros. Not `shard`: gradients are those that norm_program() returned.
std::string update_program(const std::vector<FlatUnit>& units, int devices, bool shard, const AdamWOptions& adamw);

}  // namespace tessera::xla
