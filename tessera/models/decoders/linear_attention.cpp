#include <tessera/models/decoders/linear_attention.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/recurrent/gated_delta.h>

namespace tessera::models {
namespace {

/// silu of a weighted sum over the last tokens of each channel: x [B, T, C], weight [C, n].
at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight) {
  const std::int64_t tokens = x.size(1), seen = weight.size(1);
  const at::Tensor before = at::constant_pad_nd(x, {0, 0, seen - 1, 0}), w = weight.to(x.scalar_type());
  at::Tensor sum = before.slice(1, 0, tokens) * w.select(1, 0);
  for (std::int64_t i = 1; i < seen; ++i) sum = sum + before.slice(1, i, i + tokens) * w.select(1, i);
  return at::silu(sum);
}

/// Scales each head's vector to length 1.
at::Tensor of_unit_length(const at::Tensor& x) { return x * (x.square().sum(-1, /*keepdim=*/true) + 1e-6).rsqrt(); }

}  // namespace

LinearAttention::LinearAttention(const ModelSpec& c, std::int64_t index) : sizes(*c.linear), index(index) {
  in_proj = register_module("in_proj", std::make_shared<Linear>(c.hidden, sizes.in_features(), false));
  conv_weight = register_parameter("conv_weight", at::empty({sizes.convolved(), sizes.kernel}));
  A_log = register_parameter("A_log", at::empty({sizes.value_heads}));
  dt_bias = register_parameter("dt_bias", at::empty({sizes.value_heads}));
  norm = register_module("norm", make_norm(c.norms, sizes.value_size));
  out_proj = register_module("out_proj", std::make_shared<Linear>(sizes.values(), c.hidden, false));
}

at::Tensor LinearAttention::forward(const at::Tensor& x, const LlamaContext& context) {
  if (!context.documents.empty())
    throw InputError(
        "linear attention has one memory per row, which is not reset where a document begins: remove "
        "--reset_position_ids and --packing");
  if (context.part) throw InputError("linear attention reads a row from its first token: use --cp_size 1");
  const at::Tensor all = in_proj->forward(x, context.between_layers());  // [B, T, in]
  const std::int64_t tokens = all.size(1);
  const std::int64_t convolved_end = sizes.convolved(), gate_end = convolved_end + sizes.values();
  at::Tensor inputs = all.slice(2, 0, convolved_end), gates = all.slice(2, gate_end);
  if (context.cache) {  // earlier tokens are read again: the memory itself is not cached
    const auto [earlier, earlier_gates] =
        context.cache->append(static_cast<std::size_t>(index), inputs.unsqueeze(1), gates.unsqueeze(1));
    inputs = earlier.squeeze(1);
    gates = earlier_gates.squeeze(1);
  }
  const at::Tensor mixed = convolved(inputs.to(at::kFloat), conv_weight);
  const auto heads = [&](std::int64_t begin, std::int64_t count, std::int64_t size) {
    return mixed.slice(2, begin, begin + count * size).unflatten(2, {count, size});
  };
  const std::int64_t keys = sizes.keys(), each = sizes.value_heads / sizes.key_heads;
  const auto for_values = [&](const at::Tensor& y) { return each == 1 ? y : y.repeat_interleave(each, 2); };
  const at::Tensor q = for_values(of_unit_length(heads(0, sizes.key_heads, sizes.key_size)));
  const at::Tensor k = for_values(of_unit_length(heads(keys, sizes.key_heads, sizes.key_size)));
  const at::Tensor v = heads(2 * keys, sizes.value_heads, sizes.value_size);
  const at::Tensor strengths = gates.slice(2, 0, sizes.value_heads).to(at::kFloat).sigmoid();
  const at::Tensor steps = gates.slice(2, sizes.value_heads).to(at::kFloat) + dt_bias.to(at::kFloat);
  const at::Tensor decays = at::softplus(steps) * -A_log.to(at::kFloat).exp();
  at::Tensor read = nn::gated_delta_rule(q, k, v, decays, strengths);  // [B, T, H, V]
  read = read.slice(1, read.size(1) - tokens);
  const at::Tensor gate = all.slice(2, convolved_end, gate_end).unflatten(2, {sizes.value_heads, sizes.value_size});
  const at::Tensor y = norm->forward(read.to(x.scalar_type()).contiguous()) * at::silu(gate.to(at::kFloat));
  return out_proj->forward(y.to(all.scalar_type()).flatten(2), context.random);
}

}  // namespace tessera::models
