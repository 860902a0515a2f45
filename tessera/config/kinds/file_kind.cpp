#include <tessera/config/kinds/file_kind.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/json/json_lenient.h>
#include <tessera/base/text.h>
#include <tessera/base/yaml.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/kinds/key_tables.h>
#include <tessera/config/megatron/megatron_args.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

struct KindRow {
  FileKind kind;
  std::string_view word, title, flag;
};
constexpr std::array kinds{
    KindRow{FileKind::tessera, "tessera", "Tessera's own file", "--config"},
    KindRow{FileKind::accelerate, "accelerate", "accelerate's file", "--config_file"},
    KindRow{FileKind::deepspeed, "deepspeed", "DeepSpeed's JSON", "--deepspeed"},
    KindRow{FileKind::fsdp_config, "fsdp_config", "an fsdp_config", "--fsdp_config"},
    KindRow{FileKind::training_args, "training_args", "a file of TrainingArguments", "--args_file"},
    KindRow{FileKind::megatron, "megatron", "arguments of Megatron-LM", "--args_file"},
};
const KindRow& row_of(FileKind kind) {
  return *std::find_if(kinds.begin(), kinds.end(), [&](const KindRow& row) { return row.kind == kind; });
}

/// Among kinds that match equally, the earlier one is chosen; a flat file of TrainingArguments is also a valid file of
/// our own, with the same meaning.
constexpr std::array order{FileKind::accelerate, FileKind::deepspeed, FileKind::fsdp_config, FileKind::training_args,
                           FileKind::tessera};

/// Larger files are not configurations. YAML takes longer to parse.
constexpr std::uint64_t most_json = 1 << 20, most_yaml = 256 << 10;

bool is_section(std::string_view key) {
  return std::any_of(std::begin(all_sections), std::end(all_sections),
                     [&](Section section) { return section_key(section) == key; });
}

}  // namespace

std::string_view kind_word(FileKind kind) { return row_of(kind).word; }
std::string_view kind_title(FileKind kind) { return row_of(kind).title; }
std::string_view kind_flag(FileKind kind) { return row_of(kind).flag; }

std::optional<FileKind> kind_of_word(std::string_view word) {
  const std::string lower = to_lower(word);
  for (const KindRow& row : kinds)
    if (lower == row.word) return row.kind;
  return std::nullopt;
}

std::optional<FileKind> guess_kind(const Value& file) {
  if (!file.is_object()) return std::nullopt;
  if (file.find(model_args_key) != nullptr) return FileKind::megatron;
  std::optional<FileKind> best;
  int best_score = 0;
  for (const FileKind kind : order) {
    const std::vector<std::string> known = top_level_keys(kind);
    int score = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(file.members().size(), 200); ++i) {
      const auto& [key, value] = file.members()[i];
      if (kind == FileKind::training_args && value.is_object() && is_section(key))
        continue;  // the key "model" has a different meaning there
      if (std::find(known.begin(), known.end(), key) != known.end())
        score += 3;
      else if (nearest(key, known))
        score += 1;
    }
    // DeepSpeed's files are JSON: YAML that matches both equally is a file of arguments
    const bool yaml =
        file.where().file && (file.where().file->ends_with(".yaml") || file.where().file->ends_with(".yml"));
    const bool rather = yaml && kind == FileKind::training_args && best == FileKind::deepspeed && score == best_score;
    if (score > best_score || rather) {
      best = kind;
      best_score = score;
    }
  }
  return best;
}

Value read_any(const std::string& path) {
  if (is_directory(path)) throw InputError(concat(path, " is a folder; expected a file of settings"));
  const std::string lower = to_lower(path);
  const bool yaml = lower.ends_with(".yaml") || lower.ends_with(".yml");
  const std::string text = read_file(path, yaml ? most_yaml : most_json);
  if (trim(text).empty()) return {};
  if (!yaml && (lower.ends_with(".json") || trim(text.substr(0, 4096)).starts_with("{")))
    return parse_hjson(text, path);
  if (text.size() > most_yaml)
    throw InputError(concat(path, " has ", text.size(), " bytes; at most ", most_yaml, " are accepted of YAML"));
  std::vector<std::string> repeated;  // reported by the reader of the file
  // Files of Megatron, accelerate and TrainingArguments, and ours: their readers accept repeated keys.
  const bool lenient = text.find(model_args_key) != std::string::npos || text.find("distributed_type") != text.npos;
  Value file = parse_yaml(text, path, &repeated);
  const auto kind = guess_kind(file);
  const bool repeats = lenient || kind == FileKind::training_args || kind == FileKind::tessera;
  return repeats ? file : parse_yaml(text, path);
}

}  // namespace tessera::config
