// Values that an argument implies unless set otherwise: defaults of the program that it belongs to.

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/hf/training_args.h>

#include <algorithm>

namespace tessera::config {
namespace {

struct ProgramDefault {
  std::string_view program, beside, setting, text;  ///< beside: an argument, see asks(); empty: any of the program's
};
constexpr ProgramDefault program_defaults[] = {
    {"SimPO", "", "preference_loss", "simpo"},
    {"SimPO", "", "preference_beta", "2"},
    {"SimPO", "", "disable_dropout", "true"},
    {"DPOTrainer", "", "preference_loss", "sigmoid"},
    {"DPOTrainer", "", "learning_rate", "1e-06"},
    {"DPOTrainer", "", "bf16", "true"},
    {"DPOTrainer", "", "gradient_checkpointing", "true"},
    {"DPOTrainer", "", "max_seq_length", "1024"},
    {"DPOTrainer", "", "disable_dropout", "true"},
    {"TRL", "", "learning_rate", "2e-05"},
    {"TRL", "", "bf16", "true"},
    {"TRL", "", "gradient_checkpointing", "true"},
    {"TRL", "", "assistant_only_loss", "false"},
    {"TRL", "", "max_seq_length", "1024"},
    {trl_or_another, "", "assistant_only_loss", "false"},
    {"TRL", "use_peft", "lora_r", "16"},
    {"TRL", "use_peft", "lora_alpha", "32"},
    {"TRL", "use_peft", "lora_dropout", "0.05"},
    {"Qwen", "use_lora", "lora_r", "64"},
    {"Qwen", "use_lora", "lora_alpha", "16"},
    {"Qwen", "use_lora", "lora_dropout", "0.05"},
    {"Qwen", "use_lora", "lora_target_modules", "all-linear"},
    {"FastChat", "q_lora", "bnb_4bit_use_double_quant", "true"},
    {"LLaVA", "bits", "bnb_4bit_use_double_quant", "true"},
    {"LLaVA", "lora_enable", "lora_r", "64"},
    {"LLaVA", "lora_enable", "lora_alpha", "16"},
    {"LLaVA", "lora_enable", "lora_dropout", "0.05"},
    {"LLaVA", "lora_enable", "lora_target_modules", "all-linear"},
};

/// Whether the argument is set to true or, for `bits`, requests 4-bit weights.
bool asks(std::string_view argument, const std::string& text) {
  return argument == "bits" ? trim(text) == "4" : parse_bool(trim(text)) == true;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> defaults_beside(std::string_view program, std::string_view argument,
                                                                 const std::string& text) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const ProgramDefault& row : program_defaults)
    if (row.program == program && (row.beside.empty() || (row.beside == argument && asks(argument, text))))
      out.emplace_back(row.setting, row.text);
  return out;
}

std::vector<Implied> implied_by(const TrainingArgument& argument, const ArgumentMeaning& meaning,
                                const std::string& name, const Origin& origin) {
  std::vector<Implied> out;
  const std::string program(meaning.program), key(argument.row.key);
  for (const auto& [setting, text] : meaning.implied)
    out.push_back(
        {.setting = setting, .text = text, .name = name, .program = program, .argument = key, .origin = origin});
  if (!meaning.off.empty())
    out.push_back({.setting = std::string(meaning.off),
                   .text = "0",
                   .name = name,
                   .program = program,
                   .argument = key,
                   .origin = origin,
                   .off = true});
  return out;
}

void apply_implied(Resolved& resolved) {
  const auto of = [](std::string_view program) {
    return [program](const Implied& implied) { return implied.program == program; };
  };
  // SimPO's trainer shares names with TRL's DPOTrainer, but not its defaults.
  if (std::any_of(resolved.implied.begin(), resolved.implied.end(), of("SimPO")))
    std::erase_if(resolved.implied, of("DPOTrainer"));
  // If a recipe has names of both TRL and its DPOTrainer, it is for the latter.
  std::stable_partition(resolved.implied.begin(), resolved.implied.end(), of("DPOTrainer"));
  const auto said = [](const Implied& implied) {
    return implied.origin.is_flag() ? implied.name : concat(implied.name, " (", implied.origin, ")");
  };
  for (const Implied& implied : resolved.implied) {
    if (!implied.off) continue;
    const Field* field = find_field(implied.setting);
    const Value before = field->get(resolved.values);
    if (const auto wrong = field->set(resolved.values, implied.text)) continue;
    if (dump_json(before) != dump_json(field->get(resolved.values)))
      resolved.notes.push_back(concat(implied.setting, " (", resolved.origin(implied.setting),
                                      ") has no effect: ", said(implied), " is false"));
    resolved.origins[implied.setting] = implied.origin;
  }
  for (Implied& implied : resolved.implied) {
    if (implied.off || implied.program == trl_or_another) continue;
    const bool itself = implied.program.empty();  // model_type, which applies only without a model
    const bool given = !resolved.is_default(implied.setting) || (itself && !resolved.is_default("model_name_or_path"));
    if (given && itself) resolved.notes.push_back(concat(said(implied), " has no effect: a model is given"));
    if (given || (implied.setting == "bf16" && resolved.values.optimization.fp16)) continue;
    if (const auto wrong = find_field(implied.setting)->set(resolved.values, implied.text)) continue;
    resolved.origins[implied.setting] =
        itself ? implied.origin : Origin::derived(concat(implied.program, "'s default with ", implied.name));
    implied.taken = !itself;
  }
}

namespace {

/// A name that TRL and others share changes nothing, but TRL's users expect other defaults.
void tell_of_trl(Resolved& resolved, bool is_trl) {
  const auto maybe = std::find_if(resolved.implied.begin(), resolved.implied.end(),
                                  [](const Implied& implied) { return implied.program == trl_or_another; });
  if (is_trl || maybe == resolved.implied.end() || !resolved.is_default("assistant_only_loss")) return;
  resolved.notes.push_back(concat(maybe->name,
                                  " may be TRL's, which scores all messages of a conversation with learning rate "
                                  "2e-05: here assistant_only_loss is true and learning_rate is ",
                                  resolved.values.optimization.learning_rate, "; set both to override this"));
}

}  // namespace

void settle_implied(Resolved& resolved) {
  /// Defaults taken over from a program, and the argument that caused it.
  struct Taken {
    std::string_view program;
    std::vector<std::string> defaults = {};
    const Implied* last = nullptr;
  };
  std::vector<Taken> programs;
  for (Implied& implied : resolved.implied) {
    if (!implied.taken) continue;
    if (implied.setting == "bf16" && resolved.values.optimization.fp16) {
      implied.taken = resolved.values.optimization.bf16 = false;
      resolved.origins.erase("bf16");
      continue;
    }
    // The DPOTrainer is part of TRL, so one line covers both.
    const std::string_view program = implied.program == "DPOTrainer" ? "TRL" : std::string_view(implied.program);
    auto of = std::find_if(programs.begin(), programs.end(), [&](const Taken& t) { return t.program == program; });
    if (of == programs.end()) of = programs.insert(programs.end(), {.program = program});
    of->defaults.push_back(concat(implied.setting, " ", implied.text));
    if (of->last == nullptr || of->last->program != "DPOTrainer") of->last = &implied;
  }
  for (const Taken& taken : programs)
    resolved.notes.push_back(concat(taken.last->name, " is ", taken.last->program,
                                    "'s, whose defaults apply unless set otherwise: ", join(taken.defaults),
                                    taken.program == "Qwen"
                                        ? "; other programs use other adapters for it: set --lora_r, --lora_alpha and "
                                          "--lora_target_modules if yours differ"
                                        : ""));
  tell_of_trl(resolved,
              std::any_of(programs.begin(), programs.end(), [](const Taken& t) { return t.program == "TRL"; }));
}

}  // namespace tessera::config
