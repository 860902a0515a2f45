#include <tessera/format/crc32c.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <tessera/base/file.h>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// RFC 3720 appendix B.4 and the customary check value.
TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(as_bytes("")), 0u);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xFF'))), 0x62A8AB43u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(as_bytes(rising)), 0x46DD794Eu);
  EXPECT_EQ(crc32c_portable(as_bytes(rising)), 0x46DD794Eu);
}

TEST(Crc32c, TablesAgreeWithInstructionAtAnyAlignmentAndCut) {
  EXPECT_TRUE(rc::check([](const std::string& text, std::uint8_t skip, std::uint8_t cut) {
    const auto bytes = as_bytes(text).subspan(std::min<std::size_t>(skip % 8, text.size()));
    const auto whole = crc32c(bytes);
    RC_ASSERT(whole == crc32c_portable(bytes));
    const auto first = bytes.first(std::min<std::size_t>(cut, bytes.size()));
    RC_ASSERT(whole == crc32c(bytes.subspan(first.size()), crc32c_portable(first)));
  }));
}

TEST(Digest, ChunksDoNotDependOnHowTheBytesArrive) {
  std::string bytes(2 * kDigestChunk + 5, 'x');
  for (std::size_t i = 0; i < bytes.size(); i += 1009) bytes[i] = static_cast<char>(i >> 7);
  const Digest whole = digest_of(as_bytes(bytes));
  EXPECT_EQ(whole.size, bytes.size());
  ASSERT_EQ(whole.chunks.size(), 3u);
  EXPECT_EQ(whole.chunks[2], crc32c(as_bytes(bytes).last(5)));
  DigestBuilder builder;
  builder.update(as_bytes(bytes).first(1));
  builder.update(as_bytes(bytes).subspan(1, kDigestChunk));
  builder.update(as_bytes(bytes).subspan(1 + kDigestChunk));
  EXPECT_EQ(std::move(builder).finish(), whole);
  EXPECT_TRUE(digest_of({}).chunks.empty());
}

}  // namespace
}  // namespace tessera::format
