#include <tessera/models/frozen/quantize.h>

#include <ATen/ATen.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/format/manifest/crc32c.h>
#include <tessera/models/layers.h>

namespace tessera::models {
namespace {

using NamedMap = std::pair<std::string, Linear*>;

std::vector<NamedMap> maps_of(const torch::nn::Module& model) {
  std::vector<NamedMap> found;
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (auto* const map = dynamic_cast<Linear*>(item.value().get())) found.emplace_back(item.key(), map);
  return found;
}

/// "model.layers.12.mlp.up_proj", not "classifier".
bool lies_in_a_block(const std::string& module) {
  for (const std::string& part : split(module, '.'))
    if (parse_int(part)) return true;
  return false;
}

/// A gate with one output weighs an expert, like a router.
bool stays_whole(const std::string& module, const Linear& map) {
  return !lies_in_a_block(module) || map.out_features() == 1;
}

std::string described(const nn::QuantizedForm& form) {
  if (form.bits == 8) return "int8";
  return concat(form.type, form.double_quant ? " with double quantization" : "");
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

std::optional<nn::QuantizedForm> quantized_form(const ModelConfig& config) {
  if (!config.load_in_4bit && !config.load_in_8bit) return std::nullopt;
  nn::QuantizedForm form;
  if (!config.load_in_4bit) {
    form.bits = 8;
    return form;
  }
  form.type = config.bnb_4bit_quant_type;
  form.double_quant = config.bnb_4bit_use_double_quant;
  switch (config.bnb_4bit_compute_dtype) {
    case ComputeType::automatic:
      break;
    case ComputeType::fp32:
      form.compute = at::kFloat;
      break;
    case ComputeType::bf16:
      form.compute = at::kBFloat16;
      break;
    case ComputeType::fp16:
      form.compute = at::kHalf;
      break;
  }
  return form;
}

void quantize(LanguageModel& model, const nn::QuantizedForm& form, const WeightSource* weights) {
  std::int64_t quantized = 0;
  for (const auto& [name, map] : maps_of(model)) {
    if (stays_whole(name, *map) || !model.may_be_adapted(name) || map->weight.requires_grad()) continue;
    ++quantized;
    if (map->quantized) continue;
    fill_parameter(name + ".weight", map->weight, weights);
    // Consecutive elements are the inputs of one output, however the weight is stored.
    const at::Tensor out_in = map->layout == nn::WeightLayout::out_in ? map->weight : map->weight.t();
    auto kept = std::make_shared<const nn::QuantizedWeight>(nn::quantize(out_in, form));
    if (!nn::is_finite(*kept))
      throw InputError(concat("--load_in_", form.bits, "bit: ", name,
                              ".weight contains numbers that are not finite, so no scale fits: the model's weights are "
                              "damaged; use another copy"));
    map->keep_quantized(std::move(kept));
  }
  if (quantized == 0 && model.elsewhere().empty())
    throw InputError(concat("--load_in_", form.bits, "bit: a model of type \"",
                            model.hf_config().at("model_type").as_string(),
                            "\" has no linear maps in its blocks to quantize: remove it"));
}

QuantizedSizes quantized_sizes(const torch::nn::Module& model) {
  QuantizedSizes sizes;
  for (const auto& [name, map] : maps_of(model)) {
    if (!map->quantized) continue;
    ++sizes.maps;
    sizes.elements += map->quantized->out * map->quantized->in;
    sizes.bytes += map->quantized->bytes();
  }
  return sizes;
}

std::string describe_quantized(const LanguageModel& model) {
  for (const auto& [name, map] : maps_of(model)) {
    if (!map->quantized) continue;
    const QuantizedSizes sizes = quantized_sizes(model);
    return concat(sizes.maps, sizes.maps == 1 ? " linear map in " : " linear maps in ", described(map->quantized->form),
                  ": ", format_bytes(static_cast<std::uint64_t>(sizes.bytes)), " in place of ",
                  format_bytes(static_cast<std::uint64_t>(sizes.elements) * sizeof(float)));
  }
  return "";
}

std::uint32_t quantized_checksum(const LanguageModel& model) {
  std::uint32_t checksum = 0;
  for (const auto& [name, map] : maps_of(model)) {
    if (!map->quantized) continue;
    for (const at::Tensor& tensor : {map->quantized->codes, map->quantized->absmax, map->quantized->absmax_codes})
      checksum = format::crc32c(bytes_of(tensor), checksum);
  }
  return checksum;
}

void dequantize(LanguageModel& model) {
  for (const auto& [name, map] : maps_of(model))
    if (map->quantized) map->make_whole();
}

}  // namespace tessera::models
