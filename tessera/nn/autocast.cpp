#include <tessera/nn/autocast.h>

#include <ATen/autocast_mode.h>

#include <tessera/nn/gemm.h>

namespace tessera::nn {
namespace {

std::optional<c10::ScalarType>& rounding_of_this_thread() {
  static thread_local std::optional<c10::ScalarType> type;
  return type;
}

}  // namespace

std::optional<c10::ScalarType> rounding() { return rounding_of_this_thread(); }
void set_rounding(std::optional<c10::ScalarType> type) { rounding_of_this_thread() = type; }

bool autocast_enabled(c10::DeviceType device) { return autocast_type(device).has_value(); }

std::optional<c10::ScalarType> autocast_type(c10::DeviceType device) {
  if (device == c10::kCPU && rounding()) return rounding();
  return libtorch_autocast_type(device);
}

std::optional<c10::ScalarType> libtorch_autocast_type(c10::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

Autocast::Autocast(std::optional<c10::ScalarType> type, c10::DeviceType device, bool wide)
    : enabled_(type.has_value()), device_(device) {
  if (!enabled_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  former_type_ = at::autocast::get_autocast_dtype(device_);
  former_rounding_ = rounding();
  const bool rounds = device_ == c10::kCPU && (wide || *type == at::kHalf) && !has_instructions(*type);
  if (device_ == c10::kCPU) set_rounding(rounds ? type : std::nullopt);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::set_autocast_enabled(device_, !rounds);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!enabled_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, former_type_);
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  if (device_ == c10::kCPU) set_rounding(former_rounding_);
}

}  // namespace tessera::nn
