// Phi-3 and Phi-4-mini (Abdin et al. 2024; transformers/models/phi3): one matrix for queries, keys and values, one for
// gate and up; heads may be partly rotated; dropout after attention and MLP.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

/// partial_rotary_factor is a member next to the rope parameters, or one of them (transformers 5). Phi-3's first
/// releases call longrope "yarn".
Rope read_partial_rope(const Value& json, const ModelSpec& s) {
  const Value* rope = given(json, "rope_scaling");
  if (!rope) rope = given(json, "rope_parameters");
  if (rope && !rope->is_object())
    throw InputError(concat(rope->where().str(), ": rope parameters must be a JSON object"));
  const double part =
      positive_real(rope && given(*rope, "partial_rotary_factor") ? *rope : json, "partial_rotary_factor", 1);
  const std::int64_t turned = rotated_numbers(rope ? *rope : json, "partial_rotary_factor", part, s.head_size);
  Value named = rope ? *rope : Value();
  for (const char* key : {"type", "rope_type"})
    if (const Value* type = rope ? given(*rope, key) : nullptr; type && type->as_string() == "yarn")
      named.set(key, Value::of("longrope"));
  return read_rope(json, rope ? &named : nullptr,
                   {.theta = positive_real(json, "rope_theta", 10000), .dim = turned, .max_positions = s.positions});
}

void read_phi3(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  refuse_other(json, "hidden_act", {"silu"});
  s.norms.eps = positive_real(json, "rms_norm_eps", 1e-5);
  s.packing = Packing::blocks;
  s.drops.attention = s.drops.mlp = probability(json, "resid_pdrop", 0);
  read_one_window(json, s);
  s.rope = read_partial_rope(json, s);
}

}  // namespace

const Architecture phi3 = {"phi3", "Phi3ForCausalLM", "Phi3DecoderLayer", read_phi3, llama_tensor_name};

}  // namespace tessera::architectures
