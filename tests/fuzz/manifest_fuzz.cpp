// libFuzzer entry for manifest.json: any text gives plain, distinct names with a checksum for every chunk, or
// InputError; and every changed, added or missing byte of a written manifest is detected.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/manifest.h>

namespace {

using namespace tessera;

void check(const format::Manifest& manifest) {
  std::set<std::string> names;
  for (const auto& file : manifest.files) {
    const auto& digest = file.digest;
    if (!format::is_plain_file_name(file.name) || !names.insert(file.name).second ||
        !format::is_digest_chunk(digest.chunk_bytes))
      std::abort();
    if (digest.chunks.size() != digest.size / digest.chunk_bytes + (digest.size % digest.chunk_bytes != 0))
      std::abort();
  }
}

/// Builds a manifest from the bytes: for each file a byte for its name's length, the name, two bytes for its size.
/// Returns the remaining bytes.
std::string_view make(std::string_view bytes, format::Manifest& manifest) {
  const auto take = [&bytes](std::size_t count) {
    const std::string_view taken = bytes.substr(0, count);
    bytes.remove_prefix(taken.size());
    return taken;
  };
  const auto number = [&take](std::size_t count) {
    std::uint64_t value = 0;
    for (const char byte : take(count)) value = value << 8 | static_cast<unsigned char>(byte);
    return value;
  };
  manifest.step = static_cast<std::int64_t>(number(8));
  const std::uint64_t chunk_bytes = std::uint64_t{64} << (10 + number(1) % 15);
  for (std::uint64_t files = number(1) % 5; files > 0; --files) {
    format::ManifestFile file;
    file.name = take(number(1) % 20);
    file.digest.chunk_bytes = chunk_bytes;
    file.digest.size = number(2) % 0x2800 * (chunk_bytes >> 12);  // up to 3 chunks: more would only take longer
    for (std::uint64_t at = 0; at < file.digest.size; at += chunk_bytes)
      file.digest.chunks.push_back(static_cast<std::uint32_t>(number(4)));
    manifest.files.push_back(file);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    check(format::parse_manifest(bytes, "fuzzed"));
  } catch (const InputError&) {
  }

  format::Manifest manifest;
  const std::string_view rest = make(bytes, manifest);
  for (const auto& file : manifest.files)
    if (!is_utf8(file.name)) return 0;
  std::string text;
  try {
    text = format::manifest_text(manifest);
  } catch (const Error&) {  // invalid or duplicate names
    return 0;
  }
  const format::Manifest read = format::parse_manifest(text, "written");
  if (read.step != manifest.step || read.files.size() != manifest.files.size()) std::abort();
  for (std::size_t i = 0; i < read.files.size(); ++i)
    if (read.files[i].name != manifest.files[i].name || read.files[i].digest != manifest.files[i].digest) std::abort();

  std::string changed = text;  // `rest` lists positions and their changes
  for (std::size_t i = 0; i + 3 <= rest.size(); i += 3) {
    const std::size_t place =
        (static_cast<unsigned char>(rest[i]) << 8 | static_cast<unsigned char>(rest[i + 1])) % (changed.size() + 1);
    if (place == changed.size() || rest[i + 2] == 1)
      changed.insert(place, 1, rest[i + 2]);
    else if (rest[i + 2] == 2)
      changed.erase(place, 1);
    else
      changed[place] = rest[i + 2];
  }
  if (changed == text) return 0;
  try {
    format::parse_manifest(changed, "changed");
  } catch (const InputError&) {
    return 0;
  }
  std::abort();
}
