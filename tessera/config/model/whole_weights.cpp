#include <tessera/config/model/whole_weights.h>

#include <tessera/architectures/config_value.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>

#include <string_view>
#include <utility>
#include <vector>

namespace tessera::config {
using architectures::given;
namespace {

constexpr const char* statement = "quantization_config";

bool is_part(const std::string& key, const Value& value) { return value.is_object() && key.ends_with("_config"); }

std::string method_of(const Value& quantization) {
  if (!quantization.is_object()) return "";
  if (const Value* method = given(quantization, "quant_method"); method != nullptr && method->is_string())
    return method->as_string();
  for (const char* key : {"load_in_4bit", "load_in_8bit"})  // older bitsandbytes files
    if (quantization.find(key) != nullptr) return "bitsandbytes";
  return "unknown method";
}

/// How transformers dequantizes these weights; "": not at all, or not exactly.
std::string undone_by(std::string_view method) {
  if (method == "bitsandbytes") return "model.dequantize()";
  if (method == "fp8") return "quantization_config=FineGrainedFP8Config(dequantize=True)";
  if (method == "mxfp4") return "quantization_config=Mxfp4Config(dequantize=True)";
  if (method == "compressed-tensors") return "quantization_config=CompressedTensorsConfig(run_compressed=False)";
  return "";
}

}  // namespace

/// Python code in the weights' folder, which is not copied; "author/model--module.Class" is on the Hub.
bool names_local_code(const Value& auto_map) {
  return auto_map.is_object() &&
         std::any_of(auto_map.members().begin(), auto_map.members().end(), [](const auto& member) {
           return !member.second.is_string() || member.second.as_string().find("--") == std::string::npos;
         });
}

Value of_whole_weights(const Value& hf_config) {
  if (!hf_config.is_object()) return hf_config;
  Value whole = Value::make_object();
  whole.set_where(hf_config.where());
  for (const auto& [key, value] : hf_config.members()) {
    if (key == statement || (key == "auto_map" && names_local_code(value))) continue;
    const bool type = (key == "torch_dtype" || key == "dtype") && !value.is_null();
    whole.set(key, type ? Value::of("float32") : is_part(key, value) ? of_whole_weights(value) : value);
  }
  return whole;
}

std::string quantization_of(const Value& hf_config) {
  if (!hf_config.is_object()) return "";
  if (const Value* said = given(hf_config, statement)) return method_of(*said);
  for (const auto& [key, value] : hf_config.members())
    if (is_part(key, value))
      if (std::string method = quantization_of(value); !method.empty()) return method;
  return "";
}

std::string quantization_of_folder(const std::string& folder) {
  const auto read = [&](const char* name) {
    const std::string path = path_join(folder, name);
    return path_exists(path) ? read_json(path) : Value();
  };
  if (std::string method = quantization_of(read("config.json")); !method.empty()) return method;
  for (const auto& [name, method] : {std::pair("quantize_config.json", "gptq"), std::pair("quant_config.json", "awq")})
    if (read(name).is_object()) return method;
  return "";
}

std::string why_no_quantized_weights(const std::string& folder, const std::string& method) {
  const std::string undone = undone_by(method);
  return concat(folder, ": its weights are quantized (quantization_config: ", method,
                "), but this program reads unquantized weights: use the folder that they were made from, with "
                "--load_in_4bit or --load_in_8bit and --lora_r for adapters on quantized weights",
                undone.empty() ? ""
                               : concat(", or dequantize them: in transformers, from_pretrained() with ", undone,
                                        ", then save_pretrained()"));
}

}  // namespace tessera::config
