// libFuzzer entry for compressed files: for any bytes reading ends (a megabyte is enough), and damage repeatedly gives
// an InputError with file and byte. The first byte chooses the format.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/corpus/bytes/byte_stream.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tessera::corpus::Compression;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const Compression formats[] = {Compression::gzip, Compression::zstd, Compression::xz};
  const auto stream = tessera::corpus::decompressed(tessera::corpus::stream_of(text), formats[data[0] % 3], "fuzzed");
  std::vector<char> buffer(1 + data[0] / 3 * 100u);
  std::string last;
  for (std::size_t read = 0; read < (std::size_t{1} << 20);) {
    try {
      const std::size_t got = stream->read(buffer);
      if (got > buffer.size() || stream->used() > text.size()) std::abort();
      if (got == 0) {
        if (!last.empty() || stream->used() != text.size()) std::abort();
        return 0;
      }
      read += got;
    } catch (const tessera::InputError& error) {
      const std::string_view what = error.what();
      if (!what.starts_with("fuzzed: the ") || what.find(" near byte ") == std::string_view::npos) std::abort();
      if (what == last) return 0;
      if (!last.empty()) std::abort();
      last = what;
    }
  }
  return 0;
}
