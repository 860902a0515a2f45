#include <tessera/nn/autocast.h>

#include <ATen/autocast_mode.h>

namespace tessera::nn {

bool autocast_enabled(c10::DeviceType device) { return at::autocast::is_autocast_enabled(device); }

std::optional<c10::ScalarType> autocast_type(c10::DeviceType device) {
  if (!autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

Autocast::Autocast(std::optional<c10::ScalarType> type, c10::DeviceType device)
    : enabled_(type.has_value()), device_(device) {
  if (!enabled_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  former_type_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!enabled_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, former_type_);
  at::autocast::set_autocast_enabled(device_, was_enabled_);
}

}  // namespace tessera::nn
