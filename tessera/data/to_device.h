#pragma once
/// \file
/// Batches on their way to the model.

#include <tessera/data/dataset.h>

#include <c10/core/Device.h>

namespace tessera::data {

/// `batch` with its tensors on a device; positions of a part of a sequence stay on the host.
Batch to_device(Batch batch, c10::Device device);

}  // namespace tessera::data
