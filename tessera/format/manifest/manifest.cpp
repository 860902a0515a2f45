#include <tessera/format/manifest/manifest.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iomanip>
#include <set>
#include <sstream>
#include <system_error>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

namespace tessera::format {
namespace {

constexpr const char* kFormatWord = "tessera-manifest-1";

std::string hex(std::uint32_t value) {
  std::ostringstream out;
  out << std::hex << std::setw(8) << std::setfill('0') << value;
  return out.str();
}

std::uint32_t parse_hex(const Value& value) {
  const std::string& text = value.as_string();
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size() || hex(number) != text) {
    throw InputError(
        concat(value.where().str(), ": '", text, "' is not a checksum of 8 lower-case hexadecimal digits"));
  }
  return number;
}

// Everything except the manifest's own checksum, which is computed over the one-line dump of this value.
Value body_of(const Manifest& manifest) {
  const std::uint64_t chunk_bytes = manifest.files.empty() ? kDigestChunk : manifest.files[0].digest.chunk_bytes;
  std::vector<Value> files;
  for (const ManifestFile& file : manifest.files) {
    std::vector<Value> chunks;
    for (std::uint32_t chunk : file.digest.chunks) chunks.push_back(Value::of(hex(chunk)));
    files.push_back(Value::make_object({{"name", Value::of(file.name)},
                                        {"size", Value::of(static_cast<std::int64_t>(file.digest.size))},
                                        {"crc32c", Value::make_array(std::move(chunks))}}));
  }
  return Value::make_object({{"format", Value::of(kFormatWord)},
                             {"step", Value::of(manifest.step)},
                             {"chunk_bytes", Value::of(static_cast<std::int64_t>(chunk_bytes))},
                             {"files", Value::make_array(std::move(files))}});
}

std::uint32_t checksum_of(const Value& body) {
  const std::string text = dump_json(body, -1);
  return crc32c(std::as_bytes(std::span(text)));
}

ManifestFile parse_file(const Value& entry, std::uint64_t chunk_bytes) {
  ManifestFile file;
  file.digest.chunk_bytes = chunk_bytes;
  file.name = entry.at("name").as_string();
  if (!is_plain_file_name(file.name)) {
    throw InputError(concat(entry.where().str(), ": '", file.name, "' is not the plain name of a file in this folder"));
  }
  const std::int64_t size = entry.at("size").as_int();
  if (size < 0) throw InputError(concat(entry.where().str(), ": file '", file.name, "' has a negative size ", size));
  file.digest.size = static_cast<std::uint64_t>(size);
  for (const Value& chunk : entry.at("crc32c").items()) file.digest.chunks.push_back(parse_hex(chunk));
  const std::uint64_t needed = file.digest.size / chunk_bytes + (file.digest.size % chunk_bytes != 0);
  if (file.digest.chunks.size() != needed) {
    throw InputError(concat(entry.where().str(), ": file '", file.name, "' of ", size, " bytes needs ", needed,
                            " checksums, but ", file.digest.chunks.size(), " are listed"));
  }
  return file;
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::string manifest_text(const Manifest& manifest) {
  std::set<std::string> names;
  for (const ManifestFile& file : manifest.files) {
    TESSERA_CHECK(is_plain_file_name(file.name) && names.insert(file.name).second, "a manifest: bad or repeated name '",
                  file.name, "'");
    TESSERA_CHECK(file.digest.chunk_bytes == manifest.files[0].digest.chunk_bytes, "a manifest: '", file.name,
                  "' has a checksum per ", file.digest.chunk_bytes, " bytes, '", manifest.files[0].name, "' one per ",
                  manifest.files[0].digest.chunk_bytes);
  }
  Value value = body_of(manifest);
  value.set("self_crc32c", Value::of(hex(checksum_of(value))));
  return dump_json(value) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const Value value = parse_json(text, path);
  const std::string& word = value.at("format").as_string();
  if (word != kFormatWord)
    throw InputError(concat(path, ": format is '", word, "'; this program reads '", kFormatWord, "'"));
  const std::int64_t chunk_value = value.at("chunk_bytes").as_int();
  if (chunk_value < 0 || !is_digest_chunk(static_cast<std::uint64_t>(chunk_value))) {
    throw InputError(concat(value.at("chunk_bytes").where().str(), ": chunk_bytes is ", chunk_value,
                            "; it must be a power of two from 64 KiB to 1 GiB"));
  }
  const std::uint64_t chunk_bytes = static_cast<std::uint64_t>(chunk_value);
  Manifest manifest;
  manifest.step = value.at("step").as_int();
  std::set<std::string> names;
  for (const Value& entry : value.at("files").items()) {
    manifest.files.push_back(parse_file(entry, chunk_bytes));
    if (!names.insert(manifest.files.back().name).second) {
      throw InputError(concat(entry.where().str(), ": file '", manifest.files.back().name, "' is listed twice"));
    }
  }
  const std::uint32_t expected = parse_hex(value.at("self_crc32c")), found = checksum_of(body_of(manifest));
  if (expected != found) {
    throw InputError(concat(path, ": its own checksum is ", hex(found), ", but it records ", hex(expected),
                            ": the manifest is damaged"));
  }
  // detects differences that the checksum of the contents does not cover: blanks, a missing end, unused members
  if (text != manifest_text(manifest))
    throw InputError(concat(path, ": differs from what was written: the manifest was changed"));
  return manifest;
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  write_file_atomically(path_join(folder, kManifestName), manifest_text(manifest));
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = path_join(folder, kManifestName);
  if (!path_exists(path)) {
    throw InputError(
        concat(folder, ": not a complete checkpoint: it has no ", kManifestName, ", which is written last"));
  }
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path)))  // a pipe is refused because opening it
                                                                                 // would block
    throw InputError(concat(path, ": is not a regular file"));
  return parse_manifest(read_file(path, std::uint64_t{256} << 20), path);
}

void verify_sizes(const std::string& folder, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const std::string path = path_join(folder, file.name);
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) throw InputError(concat(path, ": listed in ", kManifestName, " but not readable: ", error.message()));
    if (size != file.digest.size) {
      throw InputError(concat(path, ": has ", size, " bytes, but ", kManifestName, " lists ", file.digest.size));
    }
  }
}

}  // namespace tessera::format
