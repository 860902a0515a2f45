#include <tessera/config/kinds/key_tables.h>

#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/deepspeed/deepspeed.h>
#include <tessera/config/hf/fsdp_config.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/megatron/megatron_args.h>

#include <algorithm>

namespace tessera::config {
namespace {

/// Escapes text for a table cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

const KeyRow* exactly(std::span<const KeyRow> rows, std::string_view path) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const KeyRow& row) { return row.key == path; });
  return found == rows.end() ? nullptr : &*found;
}

std::string effect_cell(const KeyRow& row) {
  switch (row.effect) {
    case Effect::acts: {
      std::string out = row.setting.empty() ? std::string("acts") : concat("acts: `", row.setting, "`");
      if (!row.why.empty()) out += concat(row.setting.empty() ? ": " : "; ", cell(row.why));
      return out;
    }
    case Effect::ignored:
      return concat("accepted and ignored: ", cell(row.why));
    case Effect::refused:
      return concat("refused: ", cell(row.why));
  }
  return {};
}

}  // namespace

std::vector<KeyTable> key_tables() {
  return {
      {FileKind::training_args, "TrainingArguments",
       "Flags of `tessera train` and members of a `.json`, `.yaml` or `.args` file (`--args_file`, or as the only "
       "argument without a flag): "
       "transformers 4 and 5, `run_clm.py`, `run_mlm.py`.",
       training_args_rows()},
      {FileKind::accelerate, "accelerate's file",
       "`--config_file`, and `tessera launch --config_file`. Keys of sections may omit their prefix. Keys that the "
       "questionnaire always writes are ignored without a warning.",
       accelerate_keys()},
      {FileKind::fsdp_config, "fsdp_config",
       "`--fsdp_config` and the section of that name in accelerate's file. Every key may have the prefix `fsdp_`.",
       fsdp_keys()},
      {FileKind::deepspeed, "DeepSpeed's JSON",
       "`--deepspeed`, `deepspeed_config_file` in accelerate's file, `deepspeed` in TrainingArguments.",
       deepspeed_rows()},
      {FileKind::megatron, "Megatron-LM's arguments",
       "Flags of `tessera train`, when one of them is a name that only Megatron-LM has (`--train-iters`, "
       "`--tensor-model-parallel-size`, ...), and the members of `MODEL_ARGS` in a YAML file of its functional tests "
       "(`--args_file`); here with `_` for `-`.",
       megatron_keys()},
  };
}

std::string key_tables_markdown() {
  std::string out;
  for (const KeyTable& table : key_tables()) {
    std::size_t acts = 0, ignored = 0;
    for (const KeyRow& row : table.rows) {
      acts += row.effect == Effect::acts;
      ignored += row.effect == Effect::ignored;
    }
    out += concat("\n## ", table.title, "\n", table.introduction, " ", table.rows.size(), " keys: ", acts, " act, ",
                  ignored, " are accepted and ignored, ", table.rows.size() - acts - ignored,
                  " are refused.\n\n| key | effect |\n|---|---|\n");
    for (const KeyRow& row : table.rows) {
      const std::size_t dot = row.key.rfind('.');
      const KeyRow* told = row.why.starts_with("see the section") ? exactly(table.rows, row.key.substr(0, dot)) : &row;
      out += concat("| `", cell(row.key), "` | ", effect_cell(told == nullptr ? row : *told), " |\n");
    }
  }
  return out;
}

std::vector<std::string> top_level_keys(FileKind kind) {
  std::vector<std::string> keys;
  const auto add = [&](std::string_view key) {
    std::string top(key.substr(0, key.find('.')));
    if (std::find(keys.begin(), keys.end(), top) == keys.end()) keys.push_back(std::move(top));
  };
  for (const KeyTable& table : key_tables())
    if (table.kind == kind)
      for (const KeyRow& row : table.rows) {
        add(row.key);
        if (kind == FileKind::fsdp_config) add(concat("fsdp_", row.key));
      }
  if (kind == FileKind::tessera) {
    for (const Section section : all_sections) add(section_key(section));
    for (const Field& field : fields()) add(field.name);
  }
  return keys;
}

}  // namespace tessera::config
