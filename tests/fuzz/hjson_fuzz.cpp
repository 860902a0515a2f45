// libFuzzer entry for HJSON: any bytes give a value or InputError; strict JSON has the same meaning in HJSON; and a
// value survives being written and read again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/base/json/json_lenient.h>

namespace {

std::optional<std::string> read(tessera::Value (*parse)(std::string_view, const std::string&), std::string_view text) {
  try {
    return tessera::dump_json(parse(text, "fuzzed"));
  } catch (const tessera::InputError&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lenient = read(tessera::parse_hjson, text);
  if (const auto strict = read(tessera::parse_json, text); strict && strict != lenient) std::abort();
  if (lenient && read(tessera::parse_hjson, *lenient) != lenient) std::abort();
  return 0;
}
