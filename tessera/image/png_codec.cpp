// PNG through libpng, without gamma correction: samples keep the file's values, as in PIL.

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <png.h>

#include <tessera/base/error.h>
#include <tessera/image/codecs.h>
#include <tessera/image/plugin.h>

namespace tessera::image {
namespace {

struct PngDecoder {
  std::span<const std::byte> rest;  ///< bytes not yet read
  std::array<char, 200> why{};
  std::int64_t width = 0, height = 0;
  bool deep_grey = false;  ///< 16-bit grey is delivered with both bytes
  png_structp png = nullptr;
  png_infop info = nullptr;
};

/// C code is on the stack between here and decode(), so exceptions must not propagate.
[[noreturn]] void on_png_error(png_structp png, png_const_charp why) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(decoder.why.data(), decoder.why.size(), "%s", why);
  png_longjmp(png, 1);
}

void on_png_warning(png_structp, png_const_charp) {}

void take_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (count > decoder.rest.size()) png_error(png, "the file is truncated");
  std::memcpy(to, decoder.rest.data(), count);
  decoder.rest = decoder.rest.subspan(count);
}

/// Reads the header and sets up the sample conversions. Returns false on an error; no destructors may run between
/// setjmp and longjmp.
bool read_header(PngDecoder& decoder) {
  png_structp png = decoder.png;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size() applies our own limit
  png_set_chunk_malloc_max(png, 64 << 20);
  png_set_read_fn(png, &decoder, take_bytes);
  png_read_info(png, decoder.info);
  decoder.width = png_get_image_width(png, decoder.info);
  decoder.height = png_get_image_height(png, decoder.info);
  const int kind = png_get_color_type(png, decoder.info), bits = png_get_bit_depth(png, decoder.info);
  decoder.deep_grey = kind == PNG_COLOR_TYPE_GRAY && bits == 16;
  if (kind == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (kind == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (bits == 16 && !decoder.deep_grey) png_set_strip_16(png);
  png_set_strip_alpha(png);
  if ((kind & PNG_COLOR_MASK_COLOR) == 0 && !decoder.deep_grey) png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, decoder.info);
  return true;
}

bool read_rows(PngDecoder& decoder, png_bytepp rows) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  png_read_image(decoder.png, rows);
  png_read_end(decoder.png, nullptr);
  return true;
}

/// PIL clips 16-bit grey at 255.
void from_deep_grey(const std::vector<std::uint8_t>& grey, std::vector<std::uint8_t>& rgb) {
  for (std::size_t i = 0; i < grey.size() / 2; ++i)
    std::fill_n(rgb.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, grey[2 * i] != 0 ? 255 : grey[2 * i + 1]);
}

Image read_png(PngDecoder& decoder, const std::string& name) {
  const auto check = [&](bool whole) {
    if (!whole) throw InputError(concat(name, ": the PNG cannot be read: ", decoder.why.data()));
  };
  check(read_header(decoder));
  check_size(decoder.width, decoder.height, name);
  Image image{decoder.width, decoder.height, {}};
  const auto width = static_cast<std::size_t>(image.width), height = static_cast<std::size_t>(image.height);
  const std::size_t row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  if (row_bytes != width * (decoder.deep_grey ? 2 : 3))
    throw InputError(concat(name, ": the PNG cannot be read: its rows have ", row_bytes, " bytes"));
  image.rgb.resize(width * height * 3);
  std::vector<std::uint8_t> grey(decoder.deep_grey ? width * height * 2 : 0);
  std::vector<png_bytep> rows;
  for (std::size_t y = 0; y < height; ++y)
    rows.push_back((decoder.deep_grey ? grey.data() : image.rgb.data()) + y * row_bytes);
  check(read_rows(decoder, rows.data()));
  if (decoder.deep_grey) from_deep_grey(grey, image.rgb);
  return image;
}

}  // namespace

Image decode_png(std::span<const std::byte> bytes, const std::string& name) {
  PngDecoder decoder{.rest = bytes};
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, on_png_error, on_png_warning);
  if (decoder.png == nullptr) throw Error("libpng cannot be used: its version differs, or memory is exhausted");
  const struct End {
    PngDecoder& decoder;
    ~End() { png_destroy_read_struct(&decoder.png, &decoder.info, nullptr); }
  } end{decoder};
  decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) throw Error("out of memory for a PNG");
  return read_png(decoder, name);
}

}  // namespace tessera::image
