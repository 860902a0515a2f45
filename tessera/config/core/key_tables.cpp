#include <tessera/config/core/key_tables.h>

#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_file.h>
#include <tessera/config/accelerate/fsdp_config.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/deepspeed/deepspeed.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/megatron/megatron_args.h>

#include <algorithm>

namespace tessera::config {
namespace {

/// Text as the cell of a table.
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
       "`--config_file`, and `tessera launch --config_file`. Keys of sections also without their prefix. What the "
       "questionnaire writes in any "
       "case is ignored without a warning.",
       accelerate_keys()},
      {FileKind::fsdp_config, "fsdp_config",
       "`--fsdp_config` and the section of that name in accelerate's file. Every key also with the prefix `fsdp_`.",
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
                  " are refused.\n\n| key | what becomes of it |\n|---|---|\n");
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

namespace {

/// The row of the path, or of the nearest section around it.
const KeyRow* around(std::span<const KeyRow> rows, std::string_view path) {
  for (;;) {
    if (const KeyRow* row = exactly(rows, path); row != nullptr && !row->why.starts_with("see the section")) return row;
    const std::size_t dot = path.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    path = path.substr(0, dot);
  }
}

const KeyRow* fsdp_row(std::string_view path) {
  return around(fsdp_keys(), path.starts_with("fsdp_") ? path.substr(5) : path);
}

/// What stands behind the section's name; empty when the path is not below it.
std::string_view below(std::string_view section, std::string_view path) {
  return path.size() > section.size() && path.starts_with(section) && path[section.size()] == '.'
             ? path.substr(section.size() + 1)
             : std::string_view{};
}

const KeyRow* megatron_row(std::string_view path) {
  static constexpr KeyRow harness{"", "", Effect::ignored, "it is for the harness of Megatron's tests"};
  std::string name(below(model_args_key, path));
  if (name.empty()) return &harness;
  name.erase(0, name.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '-', '_');
  return find_field(name) != nullptr ? nullptr : find_megatron_key(name);
}

const KeyRow* row_of(FileKind kind, std::string_view path) {
  if (kind == FileKind::tessera) return nullptr;
  if (kind == FileKind::megatron) return megatron_row(path);
  if (kind == FileKind::fsdp_config) return fsdp_row(path);
  if (kind == FileKind::deepspeed)
    return around(deepspeed_rows(), path.starts_with("bfloat16.") ? concat("bf16", path.substr(8)) : std::string(path));
  if (const std::string_view key = below("fsdp_config", path); !key.empty())
    if (const KeyRow* row = fsdp_row(key)) return row;
  if (kind == FileKind::training_args) {
    if (const std::string_view key = below("deepspeed", path); !key.empty()) return around(deepspeed_rows(), key);
    return around(training_args_rows(), path);
  }
  if (const std::string_view key = below("deepspeed_config.deepspeed_config_file", path); !key.empty())
    return around(deepspeed_rows(), key);
  const std::size_t dot = path.find('.');
  if (dot != std::string_view::npos) {
    const std::string_view section = path.substr(0, dot), key = path.substr(dot + 1);
    if (const KeyRow* row = exactly(accelerate_keys(), path)) return row;
    if (const KeyRow* row = exactly(accelerate_keys(), concat(section, ".", accelerate_prefix(section), key)))
      return row;
  }
  return around(accelerate_keys(), path);
}

void collect(const Value& value, const std::string& path, FileKind kind, std::vector<Leaf>& out) {
  if (!value.is_object()) {
    if (!path.empty()) out.push_back({path, value.where(), row_of(kind, path)});
    return;
  }
  for (const auto& [key, member] : value.members())
    collect(member, path.empty() ? key : concat(path, ".", key), kind, out);
}

}  // namespace

std::vector<Leaf> leaves_of(const Value& file, FileKind kind) {
  std::vector<Leaf> out;
  collect(file, "", kind, out);
  return out;
}

}  // namespace tessera::config
