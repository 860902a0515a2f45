#pragma once
/// \file
/// Mixed precision by dispatch (PyTorch's autocast): while a guard lives, matrix products of this thread run in bf16 or
/// fp16, whatever needs range stays fp32, weights stay fp32. Our own operations look at autocast_type().
///
/// LibTorch's products in fp16 take tens of times as long as in fp32 on a processor without instructions for it, and in
/// bf16 several times. There PyTorch's autocast stays off for fp16, and where the caller says so for bf16: its
/// operations compute in fp32, ours multiply rounded operands in fp32 (nn/gemm.h).

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace tessera::nn {

/// True while this thread runs under autocast on that kind of device.
bool autocast_enabled(c10::DeviceType device);
/// The type that our matrix products compute in, or round their operands to: bf16 or fp16 under autocast, else nothing.
std::optional<c10::ScalarType> autocast_type(c10::DeviceType device);
/// The type that LibTorch's compute in: the same, or nothing where PyTorch's autocast stays off.
std::optional<c10::ScalarType> libtorch_autocast_type(c10::DeviceType device);

/// What our products on the CPU round to although PyTorch's autocast is off. It belongs to the state of autocast that
/// whoever runs something again, or without it, keeps and puts back.
std::optional<c10::ScalarType> rounding();
void set_rounding(std::optional<c10::ScalarType> type);

/// Autocast to `type` (bf16 or fp16) on one kind of device, or, without a type, nothing. Belongs around the forward
/// pass only: backward runs in the precision that each operation recorded. Nests; what held before holds again
/// afterwards. The narrow copies of weights that autocast keeps are dropped when the outermost guard ends, since the
/// optimizer changes the weights. Of one thread: destroy it where it was made.
class Autocast {
 public:
  /// No type: what holds stays. `wide`: LibTorch's operations are to stay fp32 where bf16 has no instructions, too.
  Autocast(std::optional<c10::ScalarType> type, c10::DeviceType device, bool wide = false);
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
  std::optional<c10::ScalarType> former_rounding_;
};

}  // namespace tessera::nn
