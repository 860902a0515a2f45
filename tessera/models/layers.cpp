#include <tessera/models/layers.h>

#include <ATen/CPUGeneratorImpl.h>

#include <tessera/base/error.h>
#include <tessera/base/hash.h>
#include <tessera/nn/embedding.h>

#include <utility>

namespace tessera::models {

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, nn::WeightLayout layout) : layout(layout) {
  const bool out_first = layout == nn::WeightLayout::out_in;
  weight = register_parameter("weight", at::empty({out_first ? out : in, out_first ? in : out}));
  if (with_bias) bias = register_parameter("bias", at::empty({out}));
}

std::int64_t Linear::in_features() const { return weight.size(layout == nn::WeightLayout::out_in ? 1 : 0); }
std::int64_t Linear::out_features() const { return weight.size(layout == nn::WeightLayout::out_in ? 0 : 1); }

at::Tensor Linear::forward(const at::Tensor& x, const nn::RandomPlace& place) {
  const at::Tensor y = product(x, bias);
  return lora_A ? y + adapted(x, place) : y;
}

std::optional<std::vector<at::Tensor>> Linear::forward_apart(const at::Tensor& x) const {
  if (lora_A || quantized || rounding || fp8) return std::nullopt;
  return nn::linear_apart(x, weight, bias, layout, 3);
}

at::Tensor Linear::project(const at::Tensor& x, const nn::RandomPlace& place) {
  const at::Tensor y = product(x, {});
  return lora_A ? y + adapted(x, place) : y;
}

void Linear::keep_quantized(std::shared_ptr<const nn::QuantizedWeight> kept) {
  TESSERA_CHECK(kept->out == out_features() && kept->in == in_features(), "a weight [", kept->out, ", ", kept->in,
                "] for a map of ", in_features(), " features to ", out_features());
  parameters_.erase("weight");
  weight = at::empty(weight.sizes(), at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
  quantized = std::move(kept);
}

void Linear::make_whole() {
  TESSERA_CHECK(quantized, "the weight is not quantized");
  const at::Tensor out_in = nn::dequantize(*quantized);
  quantized.reset();
  weight = register_parameter("weight", layout == nn::WeightLayout::out_in ? out_in : out_in.t().contiguous(),
                              /*requires_grad=*/false);
}

at::Tensor Linear::product(const at::Tensor& x, const at::Tensor& added) const {
  if (quantized) return nn::quantized_linear(x, quantized, added);
  if (rounding) [[unlikely]]
    return nn::fake_quantized_linear(x, weight, added, layout, *rounding, is_training());
  const nn::Fp8Scope scope(fp8, is_training());
  return nn::linear(x, weight, added, layout);
}

at::Tensor Linear::adapted(const at::Tensor& x, const nn::RandomPlace& place) const {
  at::Tensor kept = x;
  if (is_training() && lora_dropout > 0) {
    nn::RandomPlace inputs = place.at(lora_number_);
    inputs.column = nn::first_own(weight, layout == nn::WeightLayout::out_in ? 1 : 0);
    kept = nn::dropout(x, lora_dropout, inputs);
  }
  const at::Tensor low = nn::linear(kept, lora_A->weight, {}, nn::WeightLayout::out_in);  // [..., r]
  return nn::linear(low * lora_scale, lora_B->weight, {}, nn::WeightLayout::out_in);      // r is small: scale here
}

void Linear::add_lora(const std::string& name, std::int64_t r, double alpha, double dropout) {
  TESSERA_CHECK(!lora_A, "the module already has a LoRA adapter");
  TESSERA_CHECK(r > 0, "LoRA rank ", r);
  lora_A = register_module("lora_A", std::make_shared<Table>(r, in_features()));
  lora_B = register_module("lora_B", std::make_shared<Table>(out_features(), r));
  lora_scale = alpha / static_cast<double>(r);
  lora_dropout = dropout;
  lora_number_ = fnv1a(name);
}

LayerNorm::LayerNorm(std::int64_t size, double eps) : eps(eps) {
  weight = register_parameter("weight", at::empty({size}));
  bias = register_parameter("bias", at::empty({size}));
}

Table::Table(std::int64_t rows, std::int64_t columns, bool with_bias) {
  weight = register_parameter("weight", at::empty({rows, columns}));
  if (with_bias) bias = register_parameter("bias", at::empty({rows}));
}

at::Generator generator_by_name(std::uint64_t seed, const std::string& name) {
  std::uint64_t key = fnv1a(name);  // then mix in the seed (splitmix64's finalizer)
  key += seed * 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  return at::detail::createCPUGenerator(key ^ (key >> 31));
}

void normal_by_name(at::Tensor& tensor, double std, std::uint64_t seed, const std::string& name) {
  const at::NoGradGuard no_grad;
  tensor.normal_(0, std, generator_by_name(seed, name));
}

}  // namespace tessera::models
