#pragma once
/// \file
/// xla/step/: a training step as two programs that every device runs (docs/tpu.md): one adds a micro-batch's gradients
/// to the device's part of the accumulated gradients, the other updates the device's part of the parameters. This
/// header: how parameters are divided.
///
/// A unit's parameters (layout/units.h) form one flat fp32 vector, padded to a multiple of the number of devices;
/// device d keeps its d-th part, and the same part of gradients and optimizer states. Parameters with weight decay come
/// first, so that an element's position determines whether it decays.
///
/// For global programs each parameter is a unit: device d keeps its d-th rows (dimension 0), padded to as many on every
/// device, which is how XLA's partitioner divides an array.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/layout/units.h>
#include <tessera/parallel/dispatch/module_units.h>

namespace tessera::xla {

struct FlatUnit {
  std::string name;                     ///< "blocks.3", "blocks.3 (frozen)"
  bool trained = true;                  ///< true: all of its parameters are trained; false: none
  bool root = false;                    ///< parameters outside all layers
  std::vector<std::size_t> parameters;  ///< indices in the module's list
  std::vector<std::int64_t> offsets;    ///< offset of each parameter in the flat vector, in elements
  std::int64_t elements = 0;            ///< without padding
  std::int64_t decayed = 0;             ///< number of leading elements that have weight decay
  std::int64_t shard = 0;               ///< elements per device
  std::size_t layer = 0;                ///< units of the same number are used, and recomputed, together
  std::vector<std::int64_t> sizes;      ///< global programs: the parameter's
};

/// `devices` 1: parts are complete vectors. Throws InputError for parameters that are not fp32.
std::vector<FlatUnit> flat_units(const parallel::ModuleParameters& module, const layout::WrapPolicy& policy,
                                 int devices, const std::function<bool(const std::string&)>& has_decay);

/// For global programs. Scalars are whole on every device. Throws as above.
std::vector<FlatUnit> row_units(const parallel::ModuleParameters& module, const layout::WrapPolicy& policy, int devices,
                                const std::function<bool(const std::string&)>& has_decay);
/// Sizes of a device's part of row_units()' unit.
std::vector<std::int64_t> sizes_of_part(const FlatUnit& unit, int devices);

}  // namespace tessera::xla
