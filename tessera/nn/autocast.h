#pragma once
/// \file
/// Mixed precision by dispatch (PyTorch's autocast): while a guard lives, matrix products of this thread run in bf16,
/// whatever needs range stays fp32, weights stay fp32. Our own operations look at autocast_enabled().

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace tessera::nn {

/// True while this thread runs under autocast on that kind of device.
bool autocast_enabled(c10::DeviceType device);

/// Autocast to bf16 on one kind of device, or, with `enabled` false, nothing. Belongs around the forward pass only:
/// backward runs in the precision that each operation recorded. Nests; what held before holds again afterwards. The
/// bf16 copies of weights that autocast keeps are dropped when the outermost guard ends, since the optimizer changes
/// the weights. Of one thread: destroy it where it was made.
class Autocast {
 public:
  Autocast(bool enabled, c10::DeviceType device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_;
  c10::DeviceType device_;
  bool was_enabled_ = false;
  c10::ScalarType former_type_ = c10::ScalarType::BFloat16;
};

}  // namespace tessera::nn
