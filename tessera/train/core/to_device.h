#pragma once
/// \file
/// Batches on their way to the model.

#include <tessera/data/dataset.h>

#include <c10/core/Device.h>

namespace tessera::train {

/// `batch` with its tensors on a device; positions of a part of a sequence stay on the host.
data::Batch to_device(data::Batch batch, c10::Device device);

}  // namespace tessera::train
