#include <tessera/train/core/to_device.h>

#include <tessera/nn/device/send.h>

namespace tessera::train {

data::Batch to_device(data::Batch batch, c10::Device device) {
  batch.ids = nn::send(batch.ids, device);
  batch.labels = nn::send(batch.labels, device);
  batch.types = nn::send(batch.types, device);
  batch.images = nn::send(batch.images, device);
  return batch;
}

}  // namespace tessera::train
