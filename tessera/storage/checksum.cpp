#include <tessera/storage/checksum.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::storage {

std::uint32_t crc_between(const format::Digest& digest, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t chunk = digest.chunk_bytes;
  TESSERA_CHECK(begin <= end && end <= digest.size && begin % chunk == 0 && (end % chunk == 0 || end == digest.size),
                "bytes ", begin, " to ", end, " do not align with chunks of ", chunk);
  std::uint32_t crc = 0;  // CRC of an empty text
  for (std::uint64_t at = begin; at < end; at += chunk)
    crc = format::crc32c_joined(crc, digest.chunks.at(at / chunk), std::min(chunk, end - at));
  return crc;
}

void read_exactly(int fd, std::uint64_t begin, std::span<std::byte> into, const std::string& path) {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(concat(path, " cannot be read: ", std::strerror(errno)));
    if (got == 0) throw Error(concat(path, " ends at byte ", begin, ", but more is expected"));
    begin += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace tessera::storage
