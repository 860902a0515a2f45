#include <tessera/image/image.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/image/plugin.h>

namespace tessera::image {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{512} << 20;

bool begins_with(std::span<const std::byte> bytes, std::string_view beginning) {
  return bytes.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), bytes.begin(),
                    [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

/// Common image types that are not supported, recognized by their signatures.
const char* other_kind(std::span<const std::byte> bytes) {
  if (begins_with(bytes, "GIF8")) return "a GIF";
  if (begins_with(bytes, "RIFF")) return "a WebP";
  if (begins_with(bytes, "BM")) return "a BMP";
  if (begins_with(bytes, "II*") || begins_with(bytes, "MM")) return "a TIFF";
  return "no known image format";
}

}  // namespace

void check_size(std::int64_t width, std::int64_t height, const std::string& name) {
  if (width < 1 || height < 1)
    throw InputError(concat(name, ": the image is ", width, " x ", height, " pixels; both sides must be at least 1"));
  if (width > most_pixels / height)
    throw InputError(concat(name, ": the image is ", width, " x ", height, " pixels, but at most ", most_pixels,
                            " are accepted: make it smaller"));
}

Image decode(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.empty()) throw InputError(concat(name, ": the file is empty; an image was expected"));
  if (begins_with(bytes, "\xff\xd8\xff")) return image_plugin().jpeg(bytes, name);
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) return image_plugin().png(bytes, name);
  throw InputError(concat(name, ": is neither a JPEG nor a PNG file (it looks like ", other_kind(bytes),
                          "): convert it to JPEG or PNG"));
}

Image read_image(const std::string& path) {
  if (!path_exists(path)) throw InputError(concat(path, ": no such image file"));
  const std::string bytes = read_file(path, most_bytes);
  return decode(std::as_bytes(std::span(bytes)), path);
}

}  // namespace tessera::image
