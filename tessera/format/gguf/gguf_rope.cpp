// Converts rotary scaling: GGUF's metadata and Llama-3's factor tensor to config.json's rope_scaling (transformers,
// modeling_rope_utils.py).

#include <algorithm>
#include <cmath>
#include <numbers>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/gguf/gguf_model.h>
#include <tessera/format/gguf/gguf_quants.h>

namespace tessera::format {
namespace {

/// Llama-3's scaling as computed by llama.cpp's converter (Llama3 rope factors): frequency i is divided by factor i,
/// which is 1 for wavelengths below context / high, `factor` above context / low, and interpolated in between.
std::vector<double> llama3_factors(const GgufModel& model, double factor, double low, double high, double context) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < model.head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(model.head_dim);
    const double wavelength = 2 * std::numbers::pi * std::pow(model.rope_theta, exponent);
    if (wavelength < context / high) {
      out.push_back(1);
    } else if (wavelength > context / low) {
      out.push_back(factor);
    } else {
      const double smooth = (context / wavelength - low) / (high - low);
      out.push_back(1 / ((1 - smooth) / factor + smooth));
    }
  }
  return out;
}

bool run_on_all_ranks(const std::vector<float>& found, const std::vector<double>& expected) {
  return std::equal(found.begin(), found.end(), expected.begin(), expected.end(),
                    [](float a, double b) { return std::abs(a - b) <= 1e-4 * b; });
}

/// The file contains only the resulting factors, so the settings are recovered from them: the largest factor is
/// `factor`; low is 1 and high is 4 in all Llama-3 models; the original context is the power of two that reproduces
/// exactly these factors.
Value llama3_scaling(const GgufFile& file, const GgufModel& model, const GgufTensor& tensor) {
  const auto fail = [&](const std::string& why) {
    throw InputError(concat(file.path(), ": tensor 'rope_freqs.weight' ", why));
  };
  if (!can_dequantise(tensor.type) || tensor.elements() != model.head_dim / 2)
    fail(concat("has ", tensor.elements(), " elements of ", ggml_type_info(tensor.type).name, ", expected ",
                model.head_dim / 2, " of F32"));
  std::vector<float> factors(static_cast<std::size_t>(tensor.elements()));
  dequantise(tensor.type, file.bytes(tensor), factors);
  const float factor = *std::max_element(factors.begin(), factors.end());
  if (std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1; })) return Value();
  std::vector<std::int64_t> contexts = {8192};  // tries Llama-3's value first, then the other powers of two
  for (std::int64_t context = 1 << 22; context >= 16; context /= 2) contexts.push_back(context);
  constexpr double low = 1, high = 4;
  for (const std::int64_t context : contexts) {
    if (!run_on_all_ranks(factors, llama3_factors(model, factor, low, high, static_cast<double>(context)))) continue;
    return Value::make_object({{"rope_type", Value::of("llama3")},
                               {"factor", Value::of(static_cast<double>(factor))},
                               {"low_freq_factor", Value::of(low)},
                               {"high_freq_factor", Value::of(high)},
                               {"original_max_position_embeddings", Value::of(context)}});
  }
  fail("does not contain the factors of Llama-3's rotary scaling, the only supported kind with such a tensor");
  return Value();
}

std::vector<Value> longrope_factors(const GgufFile& file, const GgufModel& model, const GgufTensor* tensor,
                                    const char* name) {
  if (tensor == nullptr || !can_dequantise(tensor->type) || tensor->elements() != model.rotated / 2)
    throw InputError(concat(file.path(), ": tensor '", name, "' must contain ", model.rotated / 2, " factors"));
  std::vector<float> factors(static_cast<std::size_t>(tensor->elements()));
  dequantise(tensor->type, file.bytes(*tensor), factors);
  std::vector<Value> values;
  for (const float f : factors) {
    if (!(f > 0 && std::isfinite(f)))
      throw InputError(concat(file.path(), ": tensor '", name, "' contains ", f, "; a factor must be positive"));
    values.push_back(Value::of(static_cast<double>(f)));
  }
  return values;
}

/// Phi-3's scaling. The attention factor in the file is the one that Hugging Face computes from the two context
/// lengths.
Value longrope_scaling(const GgufFile& file, const GgufModel& model) {
  const auto context = file.integer(model.prefix + "rope.scaling.original_context_length");
  if (!context || *context < 1 || *context > model.context)
    throw InputError(concat(file.path(), ": metadata '", model.prefix, "rope.scaling.original_context_length' is ",
                            context ? std::to_string(*context) : "missing", "; with rope_factors it must be in [1, ",
                            model.context, "]"));
  const auto factors = [&](const char* name) {
    return Value::make_array(longrope_factors(file, model, file.find(name), name));
  };
  return Value::make_object({{"rope_type", Value::of("longrope")},
                             {"short_factor", factors("rope_factors_short.weight")},
                             {"long_factor", factors("rope_factors_long.weight")},
                             {"original_max_position_embeddings", Value::of(*context)}});
}

Value yarn_scaling(const GgufFile& file, const std::string& prefix, double factor) {
  Value scaling = Value::make_object({{"rope_type", Value::of("yarn")}, {"factor", Value::of(factor)}});
  if (const auto context = file.integer(prefix + "original_context_length"))
    scaling.set("original_max_position_embeddings", Value::of(*context));
  if (const auto beta = file.real(prefix + "yarn_beta_fast")) scaling.set("beta_fast", Value::of(*beta));
  if (const auto beta = file.real(prefix + "yarn_beta_slow")) scaling.set("beta_slow", Value::of(*beta));
  if (const auto ext = file.real(prefix + "yarn_ext_factor"); ext && *ext != 1)
    throw InputError(
        concat(file.path(), ": metadata '", prefix, "yarn_ext_factor' is ", *ext, "; only 1 is supported"));
  // llama.cpp multiplies its attention factor by 0.1 ln f + 1; Hugging Face's attention factor is the product.
  for (const char* key : {"attn_factor", "yarn_attn_factor"})
    if (const auto times = file.real(prefix + key); times && *times != 1)
      scaling.set("attention_factor", Value::of(*times * (0.1 * std::log(factor) + 1)));
  return scaling;
}

}  // namespace

Value read_rope_scaling(const GgufFile& file, const GgufModel& model) {
  const std::string prefix = model.prefix + "rope.scaling.";
  const std::string type(file.text(prefix + "type").value_or("none"));
  if (model.architecture == GgufArchitecture::phi3 &&
      (file.find("rope_factors_long.weight") != nullptr || file.find("rope_factors_short.weight") != nullptr))
    return longrope_scaling(file, model);
  const GgufTensor* factors = file.find("rope_freqs.weight");
  if (factors != nullptr && type == "none") return llama3_scaling(file, model, *factors);
  if (factors != nullptr)
    throw InputError(
        concat(file.path(), ": has both the tensor 'rope_freqs.weight' and rotary scaling of type '", type, "'"));
  double factor = file.real(prefix + "factor").value_or(1);
  // older files use this key: rope.scaling.type did not exist yet
  const auto old_factor = file.real(model.prefix + "rope.scale_linear");
  if (type == "none" && old_factor) factor = *old_factor;
  if (!(factor > 0 && std::isfinite(factor)))
    throw InputError(concat(file.path(), ": metadata '", prefix, "factor' is ", factor, "; it must be positive"));
  if (type == "none" && !(old_factor && factor != 1)) return Value();
  if (type == "yarn") return yarn_scaling(file, prefix, factor);
  if (type == "linear" || type == "none")
    return Value::make_object({{"rope_type", Value::of("linear")}, {"factor", Value::of(factor)}});
  throw InputError(concat(file.path(), ": rotary scaling of type '", type,
                          "' is not supported; supported are none, linear, yarn and Llama-3's"));
}

}  // namespace tessera::format
