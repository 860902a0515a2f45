// libFuzzer entry for the readers of .json and .csv: for any bytes reading ends, and every record and error names a
// place in the file. The first byte chooses the reader.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/corpus/readers/readers.h>

namespace {

using tessera::corpus::RecordReader;
using tessera::corpus::Window;

bool names_place(std::string_view text) { return text.starts_with("fuzzed:"); }

std::unique_ptr<RecordReader> reader_of(std::uint8_t choice, std::string_view text) {
  Window window(tessera::corpus::stream_of(text), "fuzzed");
  if (choice % 3 == 0) return tessera::corpus::read_json_values(std::move(window));
  return tessera::corpus::read_csv(std::move(window), choice % 3 == 1 ? ',' : '\t');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto reader = reader_of(data[0], text);
  std::string last;
  for (std::size_t steps = 0;; ++steps) {
    if (steps > 2 * size + 2) std::abort();  // each record or error consumes a byte, or is repeated
    try {
      const auto record = reader->next();
      if (!record) break;
      if (!record->is_object() || !names_place(record->where().str())) std::abort();
    } catch (const tessera::InputError& error) {
      if (!names_place(error.what())) std::abort();
      if (error.what() == last) return 0;
      last = error.what();
    }
    if (reader->bytes_read() > text.size()) std::abort();
  }
  if (reader->bytes_read() != text.size()) std::abort();
  return 0;
}
