#pragma once
/// \file
/// Mixed precision by dispatch (PyTorch's autocast): while a guard lives, matrix products of this thread run in bf16 or
/// fp16, whatever needs range stays fp32, weights stay fp32. Our own operations look at autocast_type().

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace tessera::nn {

/// True while this thread runs under autocast on that kind of device.
bool autocast_enabled(c10::DeviceType device);
/// The type that matrix products compute in: bf16 or fp16 under autocast, else nothing.
std::optional<c10::ScalarType> autocast_type(c10::DeviceType device);

/// Autocast to `type` (bf16 or fp16) on one kind of device, or, without a type, nothing. Belongs around the forward
/// pass only: backward runs in the precision that each operation recorded. Nests; what held before holds again
/// afterwards. The narrow copies of weights that autocast keeps are dropped when the outermost guard ends, since the
/// optimizer changes the weights. Of one thread: destroy it where it was made.
class Autocast {
 public:
  Autocast(std::optional<c10::ScalarType> type, c10::DeviceType device);  ///< no type: what holds stays
  /// bf16, or, with `enabled` false, nothing.
  Autocast(bool enabled, c10::DeviceType device)
      : Autocast(enabled ? std::optional(c10::ScalarType::BFloat16) : std::nullopt, device) {}
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
