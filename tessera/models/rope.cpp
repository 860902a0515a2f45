#include <tessera/models/rope.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>
#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::models {
using config::flag, config::given, config::positive_or, config::positive_real;
namespace {

using Type = RopeConfig::Type;

Type rope_type(const Value& rope) {
  const Value* v = given(rope, "rope_type");
  if (!v) v = given(rope, "type");
  if (!v) return Type::standard;
  const std::string& name = v->as_string();
  if (name == "default") return Type::standard;
  if (name == "linear") return Type::linear;
  if (name == "dynamic") return Type::dynamic;
  if (name == "yarn") return Type::yarn;
  if (name == "llama3") return Type::llama3;
  if (name == "longrope" || name == "su") return Type::longrope;  // su: Phi-3's first name for it
  throw InputError(concat(v->where().str(), ": rope type \"", name,
                          "\" is not supported; one of default, linear, dynamic, yarn, llama3, longrope is"));
}

double needed_real(const Value& rope, const char* key) {
  if (!given(rope, key)) throw InputError(concat(rope.where().str(), ": this rope type needs \"", key, "\""));
  return positive_real(rope, key, 0);
}

/// 0.1 scale ln(factor) + 1 (Peng et al. 2023, "YaRN", eq. 22).
double yarn_scale(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

void read_yarn(RopeConfig& c, const Value& rope) {
  c.beta_fast = positive_real(rope, "beta_fast", 32);
  c.beta_slow = positive_real(rope, "beta_slow", 1);
  c.truncate = flag(rope, "truncate", true);
  const Value *scale = given(rope, "mscale"), *all = given(rope, "mscale_all_dim");
  const bool both = scale && all && scale->as_real() != 0 && all->as_real() != 0;
  if (all && all->as_real() != 0) {
    const double own = yarn_scale(c.factor, all->as_real());
    c.score_factor = own * own;
  }
  c.attention_factor = positive_real(
      rope, "attention_factor",
      both ? yarn_scale(c.factor, scale->as_real()) / yarn_scale(c.factor, all->as_real()) : yarn_scale(c.factor, 1));
}

std::vector<double> longrope_factors(const Value& rope, const char* key, std::int64_t dim) {
  std::vector<double> factors;
  for (const Value& each : rope.at(key).items()) {
    factors.push_back(each.as_real());
    if (!(factors.back() > 0))
      throw InputError(concat(each.where().str(), ": \"", key, "\" holds ", factors.back(), "; it must be positive"));
  }
  if (static_cast<std::int64_t>(factors.size()) != dim / 2)
    throw InputError(concat(rope.at(key).where().str(), ": \"", key, "\" has ", factors.size(), " entries for ", dim,
                            " rotated numbers; it needs half as many, ", dim / 2));
  return factors;
}

/// Ding et al. 2024, "LongRoPE".
void read_longrope(RopeConfig& c, const Value& json, const Value& rope) {
  c.short_factors = longrope_factors(rope, "short_factor", c.dim);
  c.long_factors = longrope_factors(rope, "long_factor", c.dim);
  const char* key = "original_max_position_embeddings";  // Phi-3 has it beside the rope's parameters
  c.original_max_positions = positive_or(json, key, positive_or(rope, key, c.max_positions));
  const double original = static_cast<double>(c.original_max_positions);
  c.factor = positive_real(rope, "factor", static_cast<double>(c.max_positions) / original);
  c.attention_factor = positive_real(rope, "attention_factor",
                                     c.factor <= 1 ? 1 : std::sqrt(1 + std::log(c.factor) / std::log(original)));
}

/// theta^(-2i/D), i < D/2: in fp32 and in transformers' order, so that angles are theirs to the last bit.
at::Tensor plain_frequencies(double theta, std::int64_t dim) {
  const at::Tensor exponents = at::arange(0, dim, 2, at::kLong).to(at::kFloat) / dim;
  return 1.0 / at::pow(theta, exponents);
}

at::Tensor longrope_frequencies(const RopeConfig& c, const std::vector<double>& factors) {
  const at::Tensor exponents = at::arange(0, c.dim, 2, at::kLong).to(at::kFloat) / c.dim;
  return 1.0 / (at::tensor(factors, at::kFloat) * at::pow(c.theta, exponents));
}

at::Tensor llama3_frequencies(const RopeConfig& c, const at::Tensor& plain) {
  const double old = static_cast<double>(c.original_max_positions);
  const at::Tensor length = 2 * std::numbers::pi / plain;  // length of each wave, in tokens
  const at::Tensor slow = length > old / c.low_freq_factor, fast = length < old / c.high_freq_factor;
  const at::Tensor scaled = at::where(slow, plain / c.factor, plain);
  const at::Tensor smooth = (old / length - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  const at::Tensor blended = (1 - smooth) * scaled / c.factor + smooth * scaled;
  return at::where(slow.logical_or(fast), scaled, blended);
}

at::Tensor yarn_frequencies(const RopeConfig& c) {
  const double dim = static_cast<double>(c.dim);
  const auto turning = [&](double rotations) {  // the dimension whose wave turns so often in the original context
    return dim * std::log(static_cast<double>(c.original_max_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(c.theta));
  };
  double low = turning(c.beta_fast), high = turning(c.beta_slow);
  if (c.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp = ((at::arange(c.dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor powers = at::pow(c.theta, at::arange(0, c.dim, 2).to(at::kFloat) / c.dim);
  const at::Tensor kept = 1 - ramp;
  return 1.0 / (c.factor * powers) * (1 - kept) + 1.0 / powers * kept;
}

}  // namespace

std::int64_t RopeConfig::longest_sequence() const {
  const bool stretches = !stretched && (type == Type::linear || type == Type::dynamic);
  return stretches ? static_cast<std::int64_t>(static_cast<double>(max_positions) * factor) : max_positions;
}

RopeConfig parse_rope(const Value& json, std::int64_t head_size, std::int64_t max_positions) {
  const Value* rope = given(json, "rope_parameters");
  if (!rope) rope = given(json, "rope_scaling");
  const RopeConfig c =
      read_rope(json, rope,
                {.theta = positive_real(json, "rope_theta", 10000), .dim = head_size, .max_positions = max_positions});
  if (const double part = rope ? positive_real(*rope, "partial_rotary_factor", 1) : 1; part != 1)
    throw InputError(concat(rope->at("partial_rotary_factor").where().str(), ": partial_rotary_factor ", part,
                            " is not supported (only 1 is)"));
  return c;
}

RopeConfig parse_rope(const Value& json, std::int64_t head_size, std::int64_t max_positions, const RopeKeys& keys) {
  const Value* rope = given(json, "rope_parameters");
  if (!rope) rope = given(json, "rope_scaling");
  if (rope && !rope->is_object())
    throw InputError(concat(rope->where().str(), ": rope parameters must be a JSON object"));
  const bool inside = rope && given(*rope, "partial_rotary_factor");
  const char* key = inside ? "partial_rotary_factor" : keys.part_key;
  const Value& place = inside ? *rope : json;
  return read_rope(json, rope,
                   {.theta = positive_real(json, keys.theta_key, keys.theta),
                    .dim = rotated_numbers(place, key, positive_real(place, key, keys.part), head_size),
                    .max_positions = max_positions});
}

std::int64_t rotated_numbers(const Value& where, const char* key, double part, std::int64_t head_size) {
  const auto turned = static_cast<std::int64_t>(static_cast<double>(head_size) * part);
  if (turned > head_size || turned < 2 || turned % 2 != 0)
    throw InputError(concat(where.where().str(), ": ", key, " ", part, " turns ", turned, " numbers of each head of ",
                            head_size, ": it must be an even number of them"));
  return turned;
}

RopeConfig read_rope(const Value& json, const Value* rope, RopeConfig c) {
  if (!rope) return c;
  if (!rope->is_object()) throw InputError(concat(rope->where().str(), ": rope parameters must be a JSON object"));
  c.theta = positive_real(*rope, "rope_theta", c.theta);
  c.type = rope_type(*rope);
  if (c.type == Type::standard) return c;
  if (c.type == Type::longrope) {
    read_longrope(c, json, *rope);
    return c;
  }
  c.factor = needed_real(*rope, "factor");
  if (c.type == Type::llama3 || c.type == Type::yarn) {
    const char* key = "original_max_position_embeddings";
    c.original_max_positions = positive_or(*rope, key, positive_or(json, key, c.max_positions));
  }
  if (c.type == Type::llama3) {
    c.low_freq_factor = needed_real(*rope, "low_freq_factor");
    c.high_freq_factor = needed_real(*rope, "high_freq_factor");
    if (c.high_freq_factor <= c.low_freq_factor)
      throw InputError(concat(rope->at("high_freq_factor").where().str(), ": high_freq_factor ", c.high_freq_factor,
                              " must be above low_freq_factor ", c.low_freq_factor));
  }
  if (c.type == Type::yarn) read_yarn(c, *rope);
  if (c.type == Type::dynamic && c.dim <= 2)
    throw InputError(concat(rope->where().str(), ": dynamic rope needs heads of more than 2"));
  return c;
}

at::Tensor inverse_frequencies(const RopeConfig& c, std::int64_t sequence) {
  switch (c.type) {
    case Type::standard:
      return plain_frequencies(c.theta, c.dim);
    case Type::linear:
      return plain_frequencies(c.theta, c.dim) / c.factor;
    case Type::dynamic: {  // Hugging Face's NTK-aware base
      const double length = static_cast<double>(std::max(sequence, c.max_positions));
      const double dim = static_cast<double>(c.dim);
      const double stretch = c.factor * length / static_cast<double>(c.max_positions) - (c.factor - 1);
      return plain_frequencies(c.theta * std::pow(stretch, dim / (dim - 2)), c.dim);
    }
    case Type::yarn:
      return yarn_frequencies(c);
    case Type::llama3:
      return llama3_frequencies(c, plain_frequencies(c.theta, c.dim));
    case Type::longrope:
      return longrope_frequencies(c, sequence > c.original_max_positions ? c.long_factors : c.short_factors);
  }
  throw Error("rope type out of range");
}

}  // namespace tessera::models
