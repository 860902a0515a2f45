#include <tessera/architectures/rope.h>

#include <tessera/architectures/config_value.h>
#include <tessera/base/error.h>

#include <cmath>

namespace tessera::architectures {
namespace {

using Type = Rope::Type;

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
  if (name == "longrope" || name == "su") return Type::longrope;  // su: Phi-3's original name for longrope
  throw InputError(concat(v->where().str(), ": rope type \"", name,
                          "\" is not supported; supported: default, linear, dynamic, yarn, llama3, longrope"));
}

double needed_real(const Value& rope, const char* key) {
  if (!given(rope, key)) throw InputError(concat(rope.where().str(), ": this rope type needs \"", key, "\""));
  return positive_real(rope, key, 0);
}

/// 0.1 scale ln(factor) + 1 (Peng et al. 2023, "YaRN", eq. 22).
double yarn_scale(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

void read_yarn(Rope& c, const Value& rope) {
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
      throw InputError(
          concat(each.where().str(), ": \"", key, "\" contains ", factors.back(), "; it must be positive"));
  }
  if (static_cast<std::int64_t>(factors.size()) != dim / 2)
    throw InputError(concat(rope.at(key).where().str(), ": \"", key, "\" has ", factors.size(), " entries for ", dim,
                            " rotated elements; it needs half as many, ", dim / 2));
  return factors;
}

/// Reads the parameters of Ding et al. 2024, "LongRoPE".
void read_longrope(Rope& c, const Value& json, const Value& rope) {
  c.short_factors = longrope_factors(rope, "short_factor", c.dim);
  c.long_factors = longrope_factors(rope, "long_factor", c.dim);
  const char* key = "original_max_position_embeddings";  // Phi-3 stores it next to the rope parameters
  c.original_max_positions = positive_or(json, key, positive_or(rope, key, c.max_positions));
  const double original = static_cast<double>(c.original_max_positions);
  c.factor = positive_real(rope, "factor", static_cast<double>(c.max_positions) / original);
  c.attention_factor = positive_real(rope, "attention_factor",
                                     c.factor <= 1 ? 1 : std::sqrt(1 + std::log(c.factor) / std::log(original)));
}

}  // namespace

std::int64_t Rope::longest_sequence() const {
  const bool stretches = !stretched && (type == Type::linear || type == Type::dynamic);
  return stretches ? static_cast<std::int64_t>(static_cast<double>(max_positions) * factor) : max_positions;
}

Rope parse_rope(const Value& json, std::int64_t head_size, std::int64_t max_positions) {
  const Value* rope = given(json, "rope_parameters");
  if (!rope) rope = given(json, "rope_scaling");
  const Rope c =
      read_rope(json, rope,
                {.theta = positive_real(json, "rope_theta", 10000), .dim = head_size, .max_positions = max_positions});
  if (const double part = rope ? positive_real(*rope, "partial_rotary_factor", 1) : 1; part != 1)
    throw InputError(concat(rope->at("partial_rotary_factor").where().str(), ": partial_rotary_factor ", part,
                            " is not supported (only 1 is)"));
  return c;
}

Rope parse_rope(const Value& json, std::int64_t head_size, std::int64_t max_positions, const RopeKeys& keys) {
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
    throw InputError(concat(where.where().str(), ": ", key, " ", part, " rotates ", turned,
                            " elements of each head of ", head_size, ": the number must be even"));
  return turned;
}

Rope read_rope(const Value& json, const Value* rope, Rope c) {
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
    throw InputError(concat(rope->where().str(), ": dynamic rope needs a head size above 2"));
  return c;
}

}  // namespace tessera::architectures
