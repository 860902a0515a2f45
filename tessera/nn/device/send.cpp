#include <tessera/nn/device/send.h>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace tessera::nn {

at::Tensor send(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (device.is_cpu() || !tensor.is_cpu()) return tensor.to(device);
  return tensor.pin_memory().to(device, /*non_blocking=*/true);
}

LateNumber::LateNumber(const at::Tensor& scalar) : number_(scalar.detach()) {
  if (number_.is_cpu()) return;
  const c10::Device device = number_.device();
  const at::Tensor host = at::empty({}, at::TensorOptions(number_.scalar_type()).pinned_memory(true));
  host.copy_(number_.squeeze(), /*non_blocking=*/true);
  copied_ = std::make_shared<c10::Event>(device.type());
  copied_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  number_ = host;
}

bool LateNumber::ready() const { return !copied_ || copied_->query(); }

double LateNumber::value() const {
  if (!ready()) copied_->synchronize();
  return number_.item<double>();
}

}  // namespace tessera::nn
