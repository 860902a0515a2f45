#include <tessera/models/decoders/phi3.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>
#include <tessera/nn/nn.h>

#include <algorithm>

namespace tessera::models {
using config::given, config::positive, config::positive_real, config::probability, config::refuse_other;
namespace {

/// partial_rotary_factor stands beside the rope's parameters, or among them (transformers 5). What Phi-3's first
/// releases call "yarn" is longrope.
RopeConfig read_phi3_rope(const Value& json, const LlamaConfig& c) {
  const Value* rope = given(json, "rope_scaling");
  if (!rope) rope = given(json, "rope_parameters");
  if (rope && !rope->is_object())
    throw InputError(concat(rope->where().str(), ": rope parameters must be a JSON object"));
  const double part =
      positive_real(rope && given(*rope, "partial_rotary_factor") ? *rope : json, "partial_rotary_factor", 1);
  const std::int64_t turned = rotated_numbers(rope ? *rope : json, "partial_rotary_factor", part, c.head_size);
  Value named = rope ? *rope : Value();
  for (const char* key : {"type", "rope_type"})
    if (const Value* type = rope ? given(*rope, key) : nullptr; type && type->as_string() == "yarn")
      named.set(key, Value::of("longrope"));
  return read_rope(
      json, rope ? &named : nullptr,
      {.theta = positive_real(json, "rope_theta", 10000), .dim = turned, .max_positions = c.max_positions});
}

}  // namespace

LlamaConfig parse_phi3_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {});
  refuse_other(json, "hidden_act", {"silu"});
  c.norms.eps = positive_real(json, "rms_norm_eps", 1e-5);
  c.packed = true;
  c.drops.attention = c.drops.mlp = probability(json, "resid_pdrop", 0);
  if (given(json, "sliding_window")) std::ranges::fill(c.windows, positive(json, "sliding_window"));
  c.rope = read_phi3_rope(json, c);
  return c;
}

PackedAttention::PackedAttention(const LlamaConfig& c, std::int64_t index)
    : heads(c, index), query_heads(c.heads), key_heads(c.key_heads) {
  const std::int64_t queries = c.heads * c.head_size, keys = c.key_heads * c.head_size;
  o_proj = register_module("o_proj", std::make_shared<Linear>(queries, c.hidden, false));
  qkv_proj = register_module("qkv_proj", std::make_shared<Linear>(c.hidden, queries + 2 * keys, false));
}

at::Tensor PackedAttention::forward(const at::Tensor& x, const LlamaContext& context) {
  const at::Tensor qkv = qkv_proj->forward(x, context.between_layers());  // the heads that this rank has
  const std::int64_t all = query_heads + 2 * key_heads, own = qkv.size(2) / heads.size;
  const at::Tensor by_head = qkv.view({qkv.size(0), qkv.size(1), own, heads.size});
  const std::int64_t queries = query_heads * own / all, keys = key_heads * own / all;
  const std::int64_t first_head = nn::first_own(qkv_proj->weight, 0) / heads.size;
  return o_proj->forward(heads.mixed(by_head.narrow(2, 0, queries), by_head.narrow(2, queries, keys),
                                     by_head.narrow(2, queries + keys, keys), context, first_head, is_training()),
                         context.random);
}

PackedMlp::PackedMlp(std::int64_t hidden, std::int64_t intermediate, nn::GateKind kind) : kind(kind) {
  gate_up_proj = register_module("gate_up_proj", std::make_shared<Linear>(hidden, 2 * intermediate, false));
  down_proj = register_module("down_proj", std::make_shared<Linear>(intermediate, hidden, false));
}

at::Tensor PackedMlp::forward(const at::Tensor& x, const ForwardContext& context) {
  const at::Tensor both = gate_up_proj->forward(x, context.between_layers());
  const std::int64_t half = both.size(2) / 2;
  return down_proj->forward(nn::gated(kind, both.narrow(2, 0, half), both.narrow(2, half, half)), context.random);
}

}  // namespace tessera::models
