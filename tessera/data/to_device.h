#pragma once
/// \file
/// Moves batches to the model's device.

#include <tessera/data/dataset.h>

#include <c10/core/Device.h>

namespace tessera::data {

/// Returns `batch` with its tensors on `device`; positions of a sequence part stay on the host.
Batch to_device(Batch batch, c10::Device device);

}  // namespace tessera::data
