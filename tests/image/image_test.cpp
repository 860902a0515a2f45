// Images read, resized and padded as by Pillow (tests/parity/image_fixture.py), and files that are not images.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/image/image.h>
#include <tessera/image/plugin.h>
#include <tessera/image/prepare.h>
#include <tessera/image/resize.h>

#include <tests/error_of.h>
#include <tests/paths.h>

namespace tessera::image {
namespace {

using tessera::testing::error_of;

std::string fixture(const std::string& name) { return tessera::testing::source_path("tests/fixtures/image/" + name); }

std::string fnv(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const std::uint8_t byte : bytes) value = (value ^ byte) * 0x100000001b3;
  std::ostringstream text;
  text << std::hex << value;
  const std::string digits = text.str();
  return std::string(16 - digits.size(), '0') + digits;
}

Image turned_over(const Image& image) {
  Image out{image.height, image.width, image.rgb};
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = 0; x < image.width; ++x)
      for (std::int64_t c = 0; c < 3; ++c)
        out.rgb[static_cast<std::size_t>((x * image.height + y) * 3 + c)] =
            image.rgb[static_cast<std::size_t>((y * image.width + x) * 3 + c)];
  return out;
}

constexpr std::array<float, 3> clip_mean = {0.48145466F, 0.4578275F, 0.40821073F};
constexpr std::array<std::uint8_t, 3> clip_colour = {122, 116, 104};

/// The bytes from which prepare() computes its numbers.
Image seen_of(const Image& image, bool pad, std::int64_t side) {
  const Preparation how{side, clip_mean, {0.26862954F, 0.26130258F, 0.27577711F}, pad};
  std::vector<float> out(static_cast<std::size_t>(side * side * 3));
  prepare(image, how, "x", out);
  Image seen{side, side, std::vector<std::uint8_t>(out.size())};
  const auto pixels = static_cast<std::size_t>(side * side);
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < pixels; ++i)
      seen.rgb[3 * i + c] =
          static_cast<std::uint8_t>(std::lround((out[c * pixels + i] * how.deviation[c] + how.mean[c]) * 255));
  return seen;
}

struct ImageTest : ::testing::Test {
  void SetUp() override {
    if (!has_image_plugin()) GTEST_SKIP() << "libtessera_image.so was not built";
  }
};

TEST_F(ImageTest, EqualsPillowToTheBit) {
  std::ifstream lines(fixture("expected.txt"));
  std::string file, what, hash;
  std::int64_t width = 0, height = 0;
  int count = 0;
  const Image base = read_image(fixture("rgb.png"));
  while (lines >> file >> what >> width >> height >> hash) {
    ++count;
    Image image = what == "read"             ? read_image(fixture(file))
                  : what == "resized"        ? resized(base, width, height)
                  : what == "padded"         ? padded_to_square(base, clip_colour)
                  : what == "padded_on_side" ? padded_to_square(turned_over(base), clip_colour)
                                             : seen_of(base, what == "clip_pad", width);
    EXPECT_EQ(image.width, width) << file << " " << what;
    EXPECT_EQ(image.height, height) << file << " " << what;
    if (file.ends_with(".jpg")) continue;  // below
    EXPECT_EQ(fnv(image.rgb), hash) << file << " " << what << " " << width << " x " << height;
  }
  EXPECT_GE(count, 25);
}

TEST_F(ImageTest, JpegEqualsPillows) {
  for (const char* name : {"base.jpg", "progressive.jpg", "grey.jpg", "cmyk.jpg", "turned.jpg"}) {
    const Image image = read_image(fixture(name)), expected = read_image(fixture(concat(name, ".read.png")));
    ASSERT_EQ(image.rgb.size(), expected.rgb.size()) << name;
    std::size_t differ = 0;
    int most = 0;
    for (std::size_t i = 0; i < image.rgb.size(); ++i) {
      differ += image.rgb[i] != expected.rgb[i];
      most = std::max(most, std::abs(int{image.rgb[i]} - int{expected.rgb[i]}));
    }
    EXPECT_EQ(differ, 0U) << name << ": at most by " << most;
  }
}

TEST_F(ImageTest, NormalisesAsTransformers) {
  Image image{2, 2, {0, 10, 20, 30, 40, 50, 60, 70, 80, 255, 254, 253}};
  std::vector<float> out(12);
  prepare(image, {2, clip_mean, {0.26862954F, 0.26130258F, 0.27577711F}, false}, "x", out);
  EXPECT_FLOAT_EQ(out[0], -1.7922626F);  // (0 - 0.48145466) / 0.26862954
  EXPECT_FLOAT_EQ(out[3], 1.9303361F);   // red of 255: (1 - 0.48145466) / 0.26862954
  EXPECT_FLOAT_EQ(out[11], (static_cast<float>(253 / 255.0) - 0.40821073F) / 0.27577711F) << "planes, not pixels";
}

TEST_F(ImageTest, FilesThatAreNoneAreNamed) {
  const auto read = [](const std::string& bytes) {
    return error_of([&] { decode(std::as_bytes(std::span(bytes)), "a/b.jpg"); });
  };
  EXPECT_EQ(read(""), "a/b.jpg: the file is empty; an image was expected");
  EXPECT_EQ(read("GIF89a..."),
            "a/b.jpg: is neither a JPEG nor a PNG file (it looks like a GIF): convert it to JPEG or PNG");
  EXPECT_THROW(read_image("/nowhere/x.png"), InputError);
  for (const char* name : {"base.jpg", "progressive.jpg", "cmyk.jpg", "rgb.png", "interlaced.png", "palette.png"}) {
    const std::string whole = read_file(fixture(name));
    for (const std::size_t part : {std::size_t{12}, whole.size() / 3, whole.size() * 3 / 4}) {
      const std::string error = read(whole.substr(0, part));
      EXPECT_TRUE(error.starts_with("a/b.jpg: the ") && error.find(" cannot be read: ") != std::string::npos)
          << name << " cut to " << part << ": " << error;
    }
  }
  std::string broken = read_file(fixture("rgb.png"));
  broken[broken.size() / 2] = static_cast<char>(broken[broken.size() / 2] ^ 1);
  EXPECT_NE(read(broken).find("cannot be read: "), std::string::npos) << "a checksum is wrong";
}

TEST_F(ImageTest, BombsAreRefused) {
  std::string png = read_file(fixture("rgb.png"));
  const std::string header = "\x89PNG\r\n\x1a\n";
  ASSERT_TRUE(png.starts_with(header));
  // 20000 x 20000, with the matching checksum of the header
  const unsigned char ihdr[] = {0, 0,    0,    13, 'I', 'H', 'D', 'R', 0,    0,    0x4e, 0x20, 0,
                                0, 0x4e, 0x20, 8,  2,   0,   0,   0,   0x6c, 0x12, 0xd1, 0x6e};
  std::string bomb = header + std::string(reinterpret_cast<const char*>(ihdr), sizeof ihdr) + png.substr(33);
  EXPECT_EQ(error_of([&] { decode(std::as_bytes(std::span(bomb)), "x.png"); }),
            "x.png: the image is 20000 x 20000 pixels, but at most 178956970 are accepted: make it smaller");
  std::string jpeg = read_file(fixture("base.jpg"));
  const std::size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (const std::size_t at : {5U, 6U, 7U, 8U}) jpeg[frame + at] = static_cast<char>(0xf0);
  EXPECT_EQ(error_of([&] { decode(std::as_bytes(std::span(jpeg)), "x.jpg"); }),
            "x.jpg: the image is 61680 x 61680 pixels, but at most 178956970 are accepted: make it smaller");
  const Image thread{1, 100'000, std::vector<std::uint8_t>(300'000)};
  std::vector<float> out(336 * 336 * 3);
  EXPECT_THROW(prepare(thread, {336, clip_mean, {1, 1, 1}, false}, "thread", out), InputError);
}

}  // namespace
}  // namespace tessera::image
