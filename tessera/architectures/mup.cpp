#include <tessera/architectures/mup.h>

#include <tessera/architectures/config_value.h>

#include <cmath>

namespace tessera::architectures {

double Mup::score_scale(std::int64_t head_size) const {
  return base_head / std::pow(static_cast<double>(head_size), head_power);
}
double Mup::hidden_std(double std) const { return std / std::sqrt(width); }
double Mup::residual_std(double std, std::int64_t blocks) const {
  return std / std::sqrt(2 * static_cast<double>(blocks) * width);
}

std::optional<Mup> read_mup(const Value& json, std::int64_t hidden_size) {
  if (!flag(json, "use_mup", false)) return std::nullopt;
  Mup mup;
  mup.width =
      static_cast<double>(hidden_size) / static_cast<double>(positive_or(json, "mup_base_hidden_size", hidden_size));
  mup.embedding = positive_real(json, "mup_embedding_mult", 1);
  mup.logits = positive_real(json, "mup_output_mult", 1);
  if (mup.logits == 1) mup.logits = 1 / mup.width;
  mup.base_head = std::sqrt(positive_real(json, "mup_base_head_dim", 1));
  const Value* const power = given(json, "mup_attn_scale_power");
  mup.head_power = power ? power->as_real() : 1;
  return mup;
}

}  // namespace tessera::architectures
