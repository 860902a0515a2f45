// libFuzzer entry for TrainingArguments: any bytes as a file of arguments (JSON or YAML, by the first byte), as a .args
// file or as the value of a flag give settings that the table accepts, or problems; nothing else is thrown.

#include <tessera/base/error.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/resolve/flag_reader.h>
#include <tessera/config/resolve/resolve.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

using namespace tessera;
using namespace tessera::config;

Resolved defaults() {
  Resolved resolved;
  return resolved;
}

void check(const Translation& translation) {
  for (const FileSetting& setting : translation.settings) {
    RunConfig config;
    if (find_field(setting.name)->set(config, setting.text)) std::abort();
  }
}

void members(const std::string& text, bool yaml) {
  Problems problems;
  try {
    const Value file = yaml ? parse_yaml(text, "fuzzed") : parse_json(text, "fuzzed");
    if (!file.is_object()) return;
    std::vector<FileArgument> arguments;
    for (const auto& [key, value] : file.members()) arguments.push_back({key, value});
    static const Resolved nothing = defaults();
    check(read_file_arguments("fuzzed", arguments, nothing, problems));
  } catch (const InputError&) {
    return;
  }
  for (const std::string& line : problems.lines)
    if (!line.starts_with("fuzzed:")) std::abort();
}

void words(const std::string& text) {
  static const Resolved nothing = defaults();
  Resolved resolved = nothing;
  Problems problems;
  std::vector<std::string> typed;
  try {
    for (const FileWord& word : split_file_words(text, "fuzzed")) {
      if (word.where.line < 1 || word.where.column < 1) std::abort();
      typed.push_back(word.text);
    }
  } catch (const InputError& error) {
    if (!std::string_view(error.what()).starts_with("fuzzed:")) std::abort();
    return;
  }
  FlagReader(resolved, problems).read(typed_words(typed));
  if (resolved.notes.size() > 1) std::abort();
}

void argument(std::size_t row, const std::string& text) {
  const auto rows = training_args_rows();
  const ArgumentMeaning meaning = meaning_of(*find_training_argument(rows[row % rows.size()].key), text);
  for (const auto& [setting, given] : meaning.settings)
    if (find_field(setting) == nullptr) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (text.find(".args") != std::string::npos) return 0;  // would name a file
  switch (data[0] % 4) {
    case 0:
      members(text, false);
      break;
    case 1:
      members(text, true);
      break;
    case 2:
      words(text);
      break;
    default:
      argument(data[1], text);
  }
  return 0;
}
