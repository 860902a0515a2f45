#include <tessera/format/torch/zip.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

namespace tessera::format {
namespace {

constexpr std::uint32_t local_signature = 0x04034b50, directory_signature = 0x02014b50, end_signature = 0x06054b50,
                        end64_signature = 0x06064b50, locator64_signature = 0x07064b50;
constexpr std::uint64_t local_size = 30, directory_size = 46, end_size = 22, end64_size = 56, locator64_size = 20,
                        longest_comment = 65535;
constexpr std::uint32_t in_64_bits = 0xffffffff;

/// Reads little-endian numbers at given offsets of the file.
class Bytes {
 public:
  Bytes(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  template <class T>
  T at(std::uint64_t offset) const {
    require(offset, sizeof(T), "a number");
    T value;
    std::memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }
  std::string text(std::uint64_t offset, std::uint64_t count) const {
    require(offset, count, "a name");
    return {reinterpret_cast<const char*>(file_.data()) + offset, count};
  }
  void require(std::uint64_t offset, std::uint64_t count, std::string_view what) const {
    if (offset > file_.size() || count > file_.size() - offset)
      fail(what, " of ", count, " bytes at ", offset, " extends beyond the ", file_.size(), " bytes of the file");
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(path_, ": not a readable ZIP archive: ", parts...));
  }
  std::uint64_t size() const { return file_.size(); }

 private:
  std::span<const std::byte> file_;
  const std::string& path_;
};

struct Directory {
  std::uint64_t begin = 0, size = 0, entries = 0;
};

Directory find_directory(const Bytes& bytes) {
  if (bytes.size() < end_size) bytes.fail("it has ", bytes.size(), " bytes");
  const std::uint64_t last = bytes.size() - end_size, first = last > longest_comment ? last - longest_comment : 0;
  for (std::uint64_t at = last + 1; at-- > first;) {
    if (bytes.at<std::uint32_t>(at) != end_signature ||
        at + end_size + bytes.at<std::uint16_t>(at + 20) != bytes.size())
      continue;
    if (at >= locator64_size && bytes.at<std::uint32_t>(at - locator64_size) == locator64_signature) {
      const auto far = bytes.at<std::uint64_t>(at - locator64_size + 8);
      bytes.require(far, end64_size, "its 64-bit end record");
      if (bytes.at<std::uint32_t>(far) != end64_signature)
        bytes.fail("its 64-bit end record is not at ", far, ", the offset given for it");
      return {bytes.at<std::uint64_t>(far + 48), bytes.at<std::uint64_t>(far + 40), bytes.at<std::uint64_t>(far + 32)};
    }
    return {bytes.at<std::uint32_t>(at + 16), bytes.at<std::uint32_t>(at + 12), bytes.at<std::uint16_t>(at + 10)};
  }
  bytes.fail("it has no end record: the file is truncated or not an archive");
}

struct Sizes {
  std::uint64_t packed, plain, local;
};

/// Sizes that do not fit 32 bits are stored in the extra field 1 (only those), in the order plain, packed, local.
Sizes sizes_of(const Bytes& bytes, std::uint64_t at, std::uint64_t extra, std::uint64_t extra_size,
               const std::string& name) {
  Sizes sizes{bytes.at<std::uint32_t>(at + 20), bytes.at<std::uint32_t>(at + 24), bytes.at<std::uint32_t>(at + 42)};
  const std::uint64_t end = extra + extra_size;
  while (end - extra >= 4) {
    const auto id = bytes.at<std::uint16_t>(extra), size = bytes.at<std::uint16_t>(extra + 2);
    extra += 4;
    if (size > end - extra) bytes.fail("entry '", name, "': an extra field does not fit");
    if (id == 1) {
      std::uint64_t next = extra;
      for (std::uint64_t* value : {&sizes.plain, &sizes.packed, &sizes.local}) {
        if (*value != in_64_bits) continue;
        if (next + 8 > extra + size) bytes.fail("entry '", name, "': its 64-bit sizes are incomplete");
        *value = bytes.at<std::uint64_t>(next);
        next += 8;
      }
    }
    extra += size;
  }
  return sizes;
}

}  // namespace

std::vector<ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& path) {
  const Bytes bytes(file, path);
  const Directory directory = find_directory(bytes);
  bytes.require(directory.begin, directory.size, "its directory");
  if (directory.entries > directory.size / directory_size)
    bytes.fail("a directory of ", directory.size, " bytes cannot contain ", directory.entries, " entries");

  std::vector<ZipEntry> entries;
  std::set<std::string> names;
  std::uint64_t at = directory.begin;
  const std::uint64_t end = directory.begin + directory.size;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (end - at < directory_size || bytes.at<std::uint32_t>(at) != directory_signature)
      bytes.fail("entry ", i, " of its directory is damaged");
    const auto name_size = bytes.at<std::uint16_t>(at + 28), extra_size = bytes.at<std::uint16_t>(at + 30),
               comment_size = bytes.at<std::uint16_t>(at + 32);
    const std::uint64_t whole = directory_size + name_size + extra_size + comment_size;
    if (whole > end - at) bytes.fail("entry ", i, " extends beyond its directory");
    ZipEntry entry;
    entry.name = bytes.text(at + directory_size, name_size);
    entry.crc32 = bytes.at<std::uint32_t>(at + 16);
    if (!names.insert(entry.name).second) bytes.fail("it contains '", entry.name, "' twice");
    if (bytes.at<std::uint16_t>(at + 8) & 1) bytes.fail("entry '", entry.name, "' is encrypted");
    if (const auto method = bytes.at<std::uint16_t>(at + 10); method != 0)
      bytes.fail("entry '", entry.name, "' is compressed (method ", method, "); torch.save does not compress");
    const Sizes sizes = sizes_of(bytes, at, at + directory_size + name_size, extra_size, entry.name);
    if (sizes.packed != sizes.plain)
      bytes.fail("entry '", entry.name, "' is not compressed, but has the sizes ", sizes.packed, " and ", sizes.plain);
    bytes.require(sizes.local, local_size, "an entry");
    if (bytes.at<std::uint32_t>(sizes.local) != local_signature)
      bytes.fail("entry '", entry.name, "' is not at ", sizes.local, ", the offset given for it");
    const std::uint64_t header =
        local_size + bytes.at<std::uint16_t>(sizes.local + 26) + bytes.at<std::uint16_t>(sizes.local + 28);
    bytes.require(sizes.local, header, "the header of an entry");
    entry.begin = sizes.local + header;
    bytes.require(entry.begin, sizes.plain, concat("entry '", entry.name, "'"));
    entry.end = entry.begin + sizes.plain;
    if (entry.end > directory.begin) bytes.fail("entry '", entry.name, "' extends into the directory");
    entries.push_back(std::move(entry));
    at += whole;
  }

  std::vector<const ZipEntry*> sorted;
  for (const ZipEntry& entry : entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const ZipEntry* a, const ZipEntry* b) { return a->begin < b->begin; });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i]->begin < sorted[i - 1]->end)
      bytes.fail("the entries '", sorted[i - 1]->name, "' and '", sorted[i]->name, "' overlap");
  return entries;
}

namespace {

/// Eight tables: the checksum of an input byte followed by 0 to 7 zero bytes (slicing by 8, Kounavis and Berry 2008).
constexpr std::array<std::array<std::uint32_t, 256>, 8> crc_tables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    tables[0][byte] = crc;
  }
  for (std::uint32_t byte = 0; byte < 256; ++byte)
    for (std::size_t t = 1; t < 8; ++t)
      tables[t][byte] = tables[t - 1][byte] >> 8 ^ tables[0][tables[t - 1][byte] & 255];
  return tables;
}();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffff;
  while (bytes.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= crc_tables[7 - i][word >> 8 * i & 255];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) crc = crc >> 8 ^ crc_tables[0][(crc ^ static_cast<std::uint32_t>(byte)) & 255];
  return ~crc;
}

}  // namespace tessera::format
