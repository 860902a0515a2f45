#include <tessera/base/file_part.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include <tessera/base/text.h>

namespace tessera {
namespace {

/// Line feeds among the first `bytes` bytes; nullopt if the file is shorter or cannot be read.
std::optional<std::int64_t> lines_before(const std::string& path, std::uint64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  std::int64_t lines = 0;
  while (bytes > 0) {
    const auto size = static_cast<std::streamsize>(std::min<std::uint64_t>(bytes, buffer.size()));
    if (!file.read(buffer.data(), size)) return std::nullopt;
    lines += std::count(buffer.begin(), buffer.begin() + size, '\n');
    bytes -= static_cast<std::uint64_t>(size);
  }
  return lines;
}

}  // namespace

std::string FilePart::place(int line, int column) const {
  const std::string& path = *this;
  if (const auto before = lines_before(path, begin_)) return concat(path, ":", *before + line, ":", column);
  return concat(path, ": line ", line, " after byte ", begin_);
}

}  // namespace tessera
