// JPEG through libjpeg-turbo with its defaults, the exact integer DCT and smooth upsampling, as PIL uses it.

#include <array>
#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>

#include <tessera/base/error.h>
#include <tessera/image/codecs.h>
#include <tessera/image/plugin.h>

namespace tessera::image {
namespace {

/// Limit on the scans of a progressive file: each costs a pass over all pixels, and a small file can declare very many.
constexpr int most_scans = 500;

/// libjpeg's state followed by ours; callbacks receive a pointer to libjpeg's part.
struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> why{};
};

Decoder& decoder_of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

/// C code is on the stack between here and decode(), so exceptions must not propagate.
[[noreturn]] void give_up(Decoder& decoder, const char* why) {
  if (why != nullptr) std::snprintf(decoder.why.data(), decoder.why.size(), "%s", why);
  std::longjmp(decoder.back, 1);
}

void on_error(j_common_ptr info) {
  Decoder& decoder = decoder_of(info);
  info->err->format_message(info, decoder.why.data());
  give_up(decoder, nullptr);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > most_scans)
    give_up(decoder_of(info), "it has more than 500 scans");
}

boolean at_end(j_decompress_ptr info) {
  give_up(decoder_of(reinterpret_cast<j_common_ptr>(info)), "the file is truncated");
}

void skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<std::size_t>(count) > info->src->bytes_in_buffer) at_end(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<std::size_t>(count);
}

void nothing(j_decompress_ptr) {}
void no_message(j_common_ptr) {}
void no_warning(j_common_ptr, int) {}

/// Returns a * b / 255, rounded like Pillow's MULDIV255.
std::uint8_t share(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t x = a * b + 128;
  return static_cast<std::uint8_t>(((x >> 8) + x) >> 8);
}

/// Adobe writes CMYK inverted, so each value is the share of light that the ink lets through. PIL inverts it back and
/// computes (255 - k) - c (255 - k) / 255.
void from_inverted_cmyk(const std::uint8_t* cmyk, std::int64_t pixels, std::uint8_t* rgb) {
  for (std::int64_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3)
    for (int channel = 0; channel < 3; ++channel)
      rgb[channel] = static_cast<std::uint8_t>(cmyk[3] - share(255U - cmyk[channel], cmyk[3]));
}

/// Returns false for invalid dimensions or too many pixels.
bool make_room(const jpeg_decompress_struct& info, Image& image, std::vector<std::uint8_t>& row) {
  image.width = info.image_width;
  image.height = info.image_height;
  if (image.width < 1 || image.height < 1 || image.width > most_pixels / image.height) return false;
  image.rgb.resize(static_cast<std::size_t>(image.width * image.height * 3));
  row.resize(static_cast<std::size_t>(image.width) * 4);
  return true;
}

/// No destructors may run between setjmp and longjmp, so the caller owns `image` and `row`.
bool read(Decoder& decoder, std::span<const std::byte> bytes, Image& image, std::vector<std::uint8_t>& row) {
  jpeg_decompress_struct& info = decoder.info;
  info.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = on_error;
  decoder.errors.output_message = no_message;
  decoder.errors.emit_message = no_warning;
  info.client_data = &decoder;
  if (setjmp(decoder.back) != 0) return false;
  jpeg_create_decompress(&info);
  decoder.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  decoder.source.bytes_in_buffer = bytes.size();
  decoder.source.init_source = nothing;
  decoder.source.fill_input_buffer = at_end;
  decoder.source.skip_input_data = skip;
  decoder.source.resync_to_restart = jpeg_resync_to_restart;
  decoder.source.term_source = nothing;
  info.src = &decoder.source;
  decoder.progress.progress_monitor = on_progress;
  info.progress = &decoder.progress;
  jpeg_read_header(&info, TRUE);
  info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  if (!make_room(info, image, row)) return true;  // the caller reports the invalid size
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    std::uint8_t* out = image.rgb.data() + static_cast<std::size_t>(info.output_scanline) * info.output_width * 3;
    JSAMPROW into = info.out_color_components == 3 ? out : row.data();
    jpeg_read_scanlines(&info, &into, 1);
    if (info.out_color_components == 4) from_inverted_cmyk(row.data(), info.output_width, out);
    if (info.out_color_components == 1)
      for (JDIMENSION x = 0; x < info.output_width; ++x) out[3 * x] = out[3 * x + 1] = out[3 * x + 2] = row[x];
  }
  return true;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name) {
  Decoder decoder;
  Image image;
  std::vector<std::uint8_t> row;
  const bool whole = read(decoder, bytes, image, row);
  jpeg_destroy_decompress(&decoder.info);
  if (!whole) throw InputError(concat(name, ": the JPEG cannot be read: ", decoder.why.data()));
  check_size(image.width, image.height, name);
  return image;
}

}  // namespace tessera::image
