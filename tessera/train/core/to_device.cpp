#include <tessera/train/core/to_device.h>

#include <ATen/ATen.h>

namespace tessera::train {

data::Batch to_device(data::Batch batch, c10::Device device) {
  batch.ids = batch.ids.to(device);
  batch.labels = batch.labels.to(device);
  if (batch.types.defined()) batch.types = batch.types.to(device);
  if (batch.images.defined()) batch.images = batch.images.to(device);
  return batch;
}

}  // namespace tessera::train
