// libFuzzer entry for our own file (--config): any bytes (JSON or YAML, by the first one) give settings that the table
// accepts, or problems with their line; nothing is thrown.

#include <tessera/base/error.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/resolve/tessera_file.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace tessera;
using namespace tessera::config;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Value file;
  try {
    file = data[0] % 2 == 0 ? parse_json(text, "fuzzed") : parse_yaml(text, "fuzzed");
  } catch (const InputError&) {
    return 0;
  }
  Problems problems;
  const Translation translation = read_tessera(file, "fuzzed", problems);
  for (const FileSetting& setting : translation.settings) {
    RunConfig config;
    if (find_field(setting.name)->set(config, setting.text)) std::abort();
  }
  for (const std::string& line : problems.lines)
    if (!line.starts_with("fuzzed:")) std::abort();
  return 0;
}
