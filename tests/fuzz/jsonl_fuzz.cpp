// libFuzzer entry for the JSON Lines reader: for any bytes every line gives a value or an InputError that names a line
// of the file, and all lines are reached.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/format/jsonl.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  tessera::format::JsonlReader reader(text, "fuzzed");
  for (int last = 0;;) {
    const auto line = reader.next_line();
    if (!line) break;
    if (line->number <= last || line->number > lines || line->text.find('\n') != std::string_view::npos) std::abort();
    last = line->number;
    const std::string where = "fuzzed:" + std::to_string(last) + ":";
    try {
      const tessera::Value value = reader.parse(*line);
      if (!value.where().str().starts_with(where)) std::abort();
    } catch (const tessera::InputError& error) {
      if (!std::string_view(error.what()).starts_with(where)) std::abort();
    }
  }
  if (reader.bytes_read() != size) std::abort();
  return 0;
}
