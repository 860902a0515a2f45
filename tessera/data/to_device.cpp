#include <tessera/data/to_device.h>

#include <tessera/nn/device/send.h>

#include <memory>
#include <utility>

namespace tessera::data {

Batch to_device(Batch batch, c10::Device device) {
  batch.ids = nn::send(batch.ids, device);
  batch.labels = nn::send(batch.labels, device);
  batch.seen = nn::send(batch.seen, device);
  batch.types = nn::send(batch.types, device);
  batch.images = nn::send(batch.images, device);
  if (batch.part) {  // positions stay on the host, where tables of angles and of rows are computed from them
    SequencePart part = *batch.part;
    part.targets = nn::send(part.targets, device);
    batch.part = std::make_shared<const SequencePart>(std::move(part));
  }
  return batch;
}

}  // namespace tessera::data
