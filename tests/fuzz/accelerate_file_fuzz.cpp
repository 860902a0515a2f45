// libFuzzer entry for accelerate's file and environment, and Megatron's arguments: any bytes give settings that obey
// their rules, or problems; the variables that a launcher packs for its ranks read back with the same meaning.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_environment.h>
#include <tessera/config/accelerate/accelerate_file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/megatron/megatron_args.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace {

using namespace tessera;
using namespace tessera::config;

/// Aborts unless every setting exists, accepts its text, and occurs once.
void check(const Translation& translation) {
  std::map<std::string, int> seen;
  for (const FileSetting& setting : translation.settings) {
    const Field* field = find_field(setting.name);
    RunConfig scratch;
    if (field == nullptr || field->set(scratch, setting.text) || ++seen[setting.name] > 1) std::abort();
  }
}

void file(std::string_view text) {
  Value value;
  try {
    value = parse_yaml(text, "fuzzed");
  } catch (const InputError&) {
    return;
  }
  Problems problems, again;
  const Translation translation = read_accelerate(value, problems);
  if (problems.lines.empty()) check(translation);
  if (!value.is_object() || !problems.lines.empty()) return;
  accelerate_variables(value);
  std::string packed;
  try {
    packed = packed_accelerate(value);
  } catch (const InputError&) {  // not UTF-8
    return;
  }
  const Translation in_rank = read_accelerate_environment(
      [&](const std::string& name) { return name == accelerate_file_variable ? std::optional(packed) : std::nullopt; },
      again);
  if (!again.lines.empty()) std::abort();
  for (const FileSetting& setting : translation.settings) {
    if (setting.name == "num_processes" || setting.name == "main_process_port") continue;  // the launcher's
    bool found = false;
    for (const FileSetting& other : in_rank.settings)
      found = found || (other.name == setting.name && other.text == setting.text);
    if (!found) std::abort();
  }
}

/// NAME=VALUE lines.
void environment(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> variables;
  for (const std::string& line : lines)
    if (const auto equals = line.find('='); equals != std::string::npos)
      variables[line.substr(0, equals)] = line.substr(equals + 1);
  Problems problems;
  const Translation translation = read_accelerate_environment(
      [&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      problems);
  if (problems.lines.empty()) check(translation);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 == 0) {
    environment(split(text, '\n'));
  } else if (data[0] % 4 == 1) {
    std::vector<FileWord> arguments = typed_words(split(text, '\n'));
    Problems problems;
    if (const auto translation =
            translate_megatron_flags(arguments, problems, [](const std::string&) { return std::nullopt; });
        translation && problems.lines.empty())
      check(*translation);
  } else {
    file(text);
  }
  return 0;
}
