// --compat v4|v5: whose defaults hold.

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/training_args.h>

namespace tessera::config {
namespace {

// What versions 4 and 5 agree about but we do not stands here, too. Where words mean different things (fsdp_config's
// version), see sharding.cpp. Names that only one version has (warmup_ratio, group_by_length, save_safetensors, ...)
// are always understood; optim is adamw_torch in 4 and adamw_torch_fused in 5, which are one optimizer here.
constexpr CompatDefault defaults[] = {
    {"output_dir", "trainer_output", "trainer_output"},
    {"logging_steps", "500", "500"},
    {"report_to", "tensorboard", "none"},  // v4: to all that is installed
    {"log_format", "hf", "hf5"},
};

struct ProgramDefault {
  std::string_view program, beside, setting, text;  ///< beside: the argument, which is true; empty: any of the program
};
constexpr ProgramDefault program_defaults[] = {
    {"TRL", "", "learning_rate", "2e-05"},         {"TRL", "", "bf16", "true"},
    {"TRL", "", "gradient_checkpointing", "true"}, {"TRL", "", "assistant_only_loss", "false"},
    {"TRL", "", "max_seq_length", "1024"},         {"TRL", "use_peft", "lora_r", "16"},
    {"TRL", "use_peft", "lora_alpha", "32"},       {"TRL", "use_peft", "lora_dropout", "0.05"},
    {"Qwen", "use_lora", "lora_r", "64"},          {"Qwen", "use_lora", "lora_alpha", "16"},
    {"Qwen", "use_lora", "lora_dropout", "0.05"},  {"LLaVA", "lora_enable", "lora_r", "64"},
    {"LLaVA", "lora_enable", "lora_alpha", "16"},  {"LLaVA", "lora_enable", "lora_dropout", "0.05"},
};

}  // namespace

std::vector<std::pair<std::string, std::string>> usual_beside(std::string_view program, std::string_view argument,
                                                              const std::string& text) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const ProgramDefault& row : program_defaults)
    if (row.program == program && (row.beside.empty() || (row.beside == argument && parse_bool(trim(text)) == true)))
      out.emplace_back(row.setting, row.text);
  return out;
}

std::vector<Resolved::Usual> usual_of(const TrainingArgument& argument, const ArgumentMeaning& meaning,
                                      const std::string& name, const Origin& origin) {
  std::vector<Resolved::Usual> out;
  const std::string whose(meaning.whose), key(argument.row.key);
  for (const auto& [setting, text] : meaning.usual)
    out.push_back({.setting = setting, .text = text, .name = name, .whose = whose, .argument = key, .origin = origin});
  if (!meaning.off.empty())
    out.push_back({.setting = std::string(meaning.off),
                   .text = "0",
                   .name = name,
                   .whose = whose,
                   .argument = key,
                   .origin = origin,
                   .off = true});
  return out;
}

void apply_usual(Resolved& resolved) {
  const auto said = [](const Resolved::Usual& usual) {
    return usual.origin.is_flag() ? usual.name : concat(usual.name, " (", usual.origin, ")");
  };
  for (const Resolved::Usual& usual : resolved.usual) {
    if (!usual.off) continue;
    const Field* field = find_field(usual.setting);
    const Value before = field->get(resolved.values);
    if (const auto wrong = field->set(resolved.values, usual.text)) continue;
    if (dump_json(before) != dump_json(field->get(resolved.values)))
      resolved.notes.push_back(
          concat(usual.setting, " (", resolved.origin(usual.setting), ") has no effect: ", said(usual), " is false"));
    resolved.origins[usual.setting] = usual.origin;
  }
  for (Resolved::Usual& usual : resolved.usual) {
    if (usual.off) continue;
    const bool itself = usual.whose.empty();  // model_type, where no model is given
    const bool given = !resolved.is_default(usual.setting) || (itself && !resolved.is_default("model_name_or_path"));
    if (given && itself) resolved.notes.push_back(concat(said(usual), " has no effect: the model is given"));
    if (given || (usual.setting == "bf16" && resolved.values.optimization.fp16)) continue;
    if (const auto wrong = find_field(usual.setting)->set(resolved.values, usual.text)) continue;
    resolved.origins[usual.setting] =
        itself ? usual.origin : Origin::derived(concat(usual.whose, "'s default beside ", usual.name));
    usual.taken = !itself;
  }
}

void settle_usual(Resolved& resolved) {
  std::vector<std::string> taken;
  const Resolved::Usual* last = nullptr;
  for (Resolved::Usual& usual : resolved.usual) {
    if (!usual.taken) continue;
    if (usual.setting == "bf16" && resolved.values.optimization.fp16) {
      usual.taken = resolved.values.optimization.bf16 = false;
      resolved.origins.erase("bf16");
      continue;
    }
    taken.push_back(concat(usual.setting, " ", usual.text));
    last = &usual;
  }
  if (last != nullptr)
    resolved.notes.push_back(
        concat(last->name, " is ", last->whose, "'s, whose defaults hold where nothing else is said: ", join(taken)));
}

std::span<const CompatDefault> compat_defaults() { return defaults; }

void apply_compat(Resolved& resolved) {
  const Origin& origin = resolved.origin("compat");
  if (origin.is_default()) return;
  const Compat version = resolved.values.files.compat;
  for (const CompatDefault& row : defaults) {
    if (!resolved.is_default(row.setting)) continue;
    find_field(row.setting)->set(resolved.values, version == Compat::v4 ? row.v4 : row.v5);
    resolved.origins[std::string(row.setting)] = Origin::derived(concat(origin, " ", version));
  }
}

}  // namespace tessera::config
