// libFuzzer entry for JPEG and PNG: any bytes give an image with all its pixels and valid inputs for a vision tower, or
// InputError. The decoders are linked in, without the surrounding plug-in.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/image/codecs.h>
#include <tessera/image/prepare.h>

namespace {

using namespace tessera::image;

/// Images with more pixels are skipped: a small file may expand to many, which takes long.
constexpr std::int64_t most = 1 << 20;

void take(const Image& image) {
  if (image.width < 1 || image.height < 1 ||
      image.rgb.size() != static_cast<std::size_t>(image.width * image.height * 3))
    std::abort();
  if (image.width * image.height > most) return;
  std::vector<float> out(8 * 8 * 3);
  for (const bool pad : {false, true}) {
    if (pad && std::max(image.width, image.height) > 1024) continue;
    prepare(image, {8, {0.5F, 0.5F, 0.5F}, {0.5F, 0.5F, 0.5F}, pad}, "fuzzed", out);
    for (const float value : out)
      if (!(std::abs(value) <= 1)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (auto* decode : {decode_jpeg, decode_png}) {
    try {
      take(decode(bytes, "fuzzed"));
    } catch (const tessera::InputError&) {
    }
  }
  return 0;
}
