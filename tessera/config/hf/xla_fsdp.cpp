#include <tessera/config/hf/xla_fsdp.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

constexpr std::string_view always = "compiled steps always do that";
constexpr std::string_view of_lazy_tensors = "it concerns torch_xla's lazy tensors; here steps are compiled once";
constexpr std::string_view groups = "all devices share one set of shards";
constexpr std::string_view python =
    "it is a Python object: use auto_wrap_policy and transformer_layer_cls_to_wrap of fsdp_config";

constexpr std::array keys{
    KeyRow{"reshard_after_forward", "reshard_after_forward"},
    KeyRow{"compute_dtype", "bf16", Effect::acts, "bfloat16 or float32"},
    KeyRow{"flatten_parameters", "", Effect::ignored, "a unit's parameters are always one flat vector"},
    KeyRow{"execute_sharding_on_init", "", Effect::ignored, of_lazy_tensors},
    KeyRow{"optimization_barrier_in_forward", "", Effect::ignored, always},
    KeyRow{"optimization_barrier_in_backward", "", Effect::ignored, always},
    KeyRow{"mark_step_on_finalization", "", Effect::ignored, of_lazy_tensors},
    KeyRow{"disable_reshard_on_root", "", Effect::ignored, "the root unit is gathered and freed like the others"},
    KeyRow{"buffer_dtype", "", Effect::ignored, "buffers are part of the compiled program, with their own types"},
    KeyRow{"fp32_reduce_scatter", "", Effect::ignored, "gradients are always summed in fp32"},
    KeyRow{"shard_param_on_dim_0", "", Effect::ignored, "flat vectors have one dimension"},
    KeyRow{"pin_layout_in_collective_ops", "", Effect::ignored, of_lazy_tensors},
    KeyRow{"sharding_groups", "", Effect::refused, groups},
    KeyRow{"sharding_rank", "", Effect::refused, groups},
    KeyRow{"sharding_world_size", "", Effect::refused, groups},
    KeyRow{"auto_wrap_policy", "", Effect::refused, python},
    KeyRow{"auto_wrapper_callable", "", Effect::refused, python},
    KeyRow{"param_init_fn", "", Effect::refused, python},
    KeyRow{"_shard_size_multiple", "", Effect::ignored, "a unit is padded to a multiple of the devices"},
};

/// Why a key has no effect with xla_fsdp_v2 although it acts, or for another reason, without it.
constexpr std::string_view partitioned = "with xla_fsdp_v2 the compiler decides when parameters are gathered and freed";
struct OfVersion2 {
  std::string_view key, why;
};
constexpr std::array in_version_2{
    OfVersion2{"reshard_after_forward", partitioned},
    OfVersion2{"optimization_barrier_in_forward", partitioned},
    OfVersion2{"optimization_barrier_in_backward", partitioned},
    OfVersion2{"disable_reshard_on_root", partitioned},
    OfVersion2{"flatten_parameters", "with xla_fsdp_v2 parameters keep their shapes"},
    OfVersion2{"shard_param_on_dim_0", "xla_fsdp_v2 always does that"},
    OfVersion2{"_shard_size_multiple", "with xla_fsdp_v2 dimension 0 is padded to a multiple of the devices"},
};

bool asks(const Value* value) { return value != nullptr && !value->is_null() && !means_no(*value); }

}  // namespace

std::span<const KeyRow> xla_fsdp_keys() { return keys; }

void translate_xla_fsdp(const Value& settings, bool v2, Translator& to) {
  if (settings.is_null() || (settings.is_string() && settings.as_string().empty())) return;
  if (!settings.is_object())
    return to.problem(settings.where(), "xla_fsdp_settings must be an object with keys such as compute_dtype");
  for (const auto& [name, value] : settings.members()) {
    if (name.starts_with("_debug_")) {
      to.ignored(value, name, of_lazy_tensors);
      continue;
    }
    const auto other = std::ranges::find(in_version_2, name, &OfVersion2::key);
    if (v2 && other != in_version_2.end() && !value.is_null()) {
      to.ignored(value, name, other->why);
      continue;
    }
    const KeyRow* const row = Translator::find(keys, "", name);
    if (row == nullptr) {
      to.unknown(name, value, keys);
    } else if (value.is_null()) {
      continue;
    } else if (name == "compute_dtype") {
      std::string type = to_lower(as_text(value, false).value_or("?"));
      if (type.starts_with("torch.")) type = type.substr(6);
      if (type == "bfloat16" || type == "bf16")
        to.give("bf16", name, std::string("true"), value.where());
      else if (type != "float32" && type != "fp32")
        to.problem(value.where(), concat("compute_dtype is '", type, "'; it must be bfloat16 or float32"), {"bf16"});
    } else {
      to.follow(*row, name, value);
    }
  }
}

bool asks_for_xla(const Value& file) {
  if (!file.is_object()) return false;
  if (asks(file.find("xla"))) return true;
  if (const Value* section = file.find("fsdp_config"); section != nullptr && section->is_object())
    if (asks(section->find("xla")) || asks(section->find("fsdp_xla"))) return true;
  const Value* const type = file.find("distributed_type");
  if (type == nullptr) return false;
  const std::string word = to_lower(as_text(*type, true).value_or(""));
  return word == "xla" || word == "tpu";
}

}  // namespace tessera::config
