#pragma once
/// \file
/// Mixed precision by dispatch (PyTorch's autocast): while a guard exists, matrix products of this thread run in bf16
/// or fp16, operations that need range stay fp32, and weights stay fp32. Our own operations check autocast_type().
///
/// On a processor without instructions for it, LibTorch's products in fp16 take tens of times as long as in fp32, and
/// in bf16 several times. There PyTorch's autocast stays off for fp16, and for bf16 if the caller requests that: its
/// operations compute in fp32, ours multiply rounded operands in fp32 (nn/gemm.h).

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace tessera::nn {

/// Whether this thread runs under autocast on that kind of device.
bool autocast_enabled(c10::DeviceType device);
/// The type that our matrix products compute in, or round their operands to: bf16 or fp16 under autocast, else nullopt.
std::optional<c10::ScalarType> autocast_type(c10::DeviceType device);
/// The type that LibTorch's products compute in: the same, or nullopt where PyTorch's autocast stays off.
std::optional<c10::ScalarType> libtorch_autocast_type(c10::DeviceType device);

/// The type that our CPU products round to while PyTorch's autocast is off. Part of the autocast state: code that
/// recomputes, or runs something without autocast, must save and restore it.
std::optional<c10::ScalarType> rounding();
void set_rounding(std::optional<c10::ScalarType> type);

/// Autocast to `type` (bf16 or fp16) on one kind of device; does nothing without a type. Use it around the forward pass
/// only: backward runs in the precision that each operation recorded. Nests; the previous state is restored afterwards.
/// Autocast's narrow copies of weights are dropped when the outermost guard ends, since the optimizer changes the
/// weights. Bound to its thread: destroy it there.
class Autocast {
 public:
  /// No type: the current state stays. `wide`: also keep LibTorch's operations in fp32 where bf16 has no instructions.
  Autocast(std::optional<c10::ScalarType> type, c10::DeviceType device, bool wide = false);
  /// bf16, or, if not `enabled`, no autocast.
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
