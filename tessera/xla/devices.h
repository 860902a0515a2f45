#pragma once
/// \file
/// Training of a torch::nn::Module on the devices of a PJRT plug-in, for programs that link libtessera.so;
/// libtessera_xla.so is loaded on demand.
///
///   const auto devices = xla::open_devices();
///   const auto step = devices->compile(*model, [&](const auto& batch) {
///     return loss(model->forward(batch[0]), batch[1]);
///   }, {.units = {.kind = layout::WrapPolicy::Kind::by_class, .classes = {"MyBlock"}}});
///   step->accumulate({{{ids, labels}}, ...});                  // a multiple of the devices
///   step->update(learning_rate, 1.0 / devices->count());       // the mean of their gradients
///   step->write_back();                                        // the module has the trained parameters again

#include <tessera/xla/compiled_step.h>

#include <memory>

namespace tessera::xla {

/// Throws InputError without a plug-in or without a device, or if the number of devices is not the requested one.
std::shared_ptr<Devices> open_devices(const DeviceRequest& request = {});

}  // namespace tessera::xla
