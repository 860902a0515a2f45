// fp8_config of accelerate's file: the recipes of accelerate/utils/dataclasses.py.
#include <tessera/config/accelerate/accelerate_sections.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>

namespace tessera::config {
namespace {

constexpr const char* fp8_section = "fp8_config";

/// A key that has a second name in TERecipeKwargs.
const Value* either(const AccelerateSections& s, const char* name, const char* other) {
  const Value* value = s.find(fp8_section, name);
  return value != nullptr ? value : s.find(fp8_section, other);
}

void give(const AccelerateSections& s, const char* setting, const Value* value) {
  if (value == nullptr || means_nothing(*value)) return;
  if (const auto text = as_text(*value, true)) s.to.give(setting, setting, to_lower(*text), value->where());
}

/// Refuses to exclude single products (fprop, dgrad, wgrad) from fp8.
void precision_of_products(const AccelerateSections& s) {
  const Value* value = s.find(fp8_section, "fp8_override_linear_precision");
  if (value == nullptr) return;
  std::string text = to_lower(as_text(*value, true).value_or(""));
  if (value->is_array())
    for (const Value& item : value->items()) text += to_lower(as_text(item, true).value_or(""));
  if (text.find("true") == std::string::npos) return;
  s.to.problem(value->where(),
               "override_linear_precision is not supported: all three products of a linear layer use fp8; remove it, "
               "or keep whole blocks in bfloat16 (--num_layers_at_start_in_bf16, "
               "--num_layers_at_end_in_bf16)");
}

}  // namespace

void translate_accelerate_fp8(const AccelerateSections& s) {
  const Value& precision = *s.find("", "mixed_precision");
  const Value* const backend = s.find(fp8_section, "fp8_backend");
  const std::string word = s.word(fp8_section, "fp8_backend").value_or("te");
  if (word == "msamp")
    return s.to.problem(backend->where(),
                        "backend MSAMP, with 8-bit gradients and optimizer states, is not implemented: use TE or AO, "
                        "which run linear layers in fp8",
                        {"fp8_format"});
  if (word != "te" && word != "ao" && word != "no")
    return s.to.problem(backend->where(), concat("fp8_backend must be one of TE, AO, MSAMP, not '", word, "'"),
                        {"fp8_format"});
  precision_of_products(s);
  const Value* const format = s.find(fp8_section, "fp8_format");
  if (word == "ao" || format == nullptr)
    s.to.give("fp8_format", "mixed_precision", std::string("hybrid"), precision.where());
  if (word == "ao") return s.to.give("fp8_recipe", "fp8_backend", std::string("tensorwise"), backend->where());
  give(s, "fp8_format", format);
  give(s, "fp8_margin", s.find(fp8_section, "fp8_margin"));
  const Value* const length = either(s, "fp8_amax_history_len", "fp8_amax_history_length");
  const Value* const which = either(s, "fp8_amax_compute_algo", "fp8_amax_compute_algorithm");
  give(s, "fp8_amax_history_len", length);
  give(s, "fp8_amax_compute_algo", which);
  if (which != nullptr && length == nullptr && to_lower(as_text(*which, true).value_or("")) == "max")
    s.to.give("fp8_amax_history_len", "fp8_amax_compute_algo", std::string("1024"), which->where());
}

}  // namespace tessera::config
