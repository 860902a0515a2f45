// libFuzzer entry for the JSON and YAML readers: any bytes give a value or InputError; a JSON value survives being
// written and read again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/base/value.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string written = tessera::dump_json(tessera::parse_json(text, "fuzzed"));
    if (tessera::dump_json(tessera::parse_json(written, "written")) != written) std::abort();
  } catch (const tessera::InputError&) {
  }
  try {
    tessera::parse_yaml(text, "fuzzed");
  } catch (const tessera::InputError&) {
  }
  return 0;
}
