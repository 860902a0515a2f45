#include <tessera/format/manifest/crc32c.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// RFC 3720 appendix B.4 and the usual check value.
TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(as_bytes("")), 0u);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xFF'))), 0x62A8AB43u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(as_bytes(rising)), 0x46DD794Eu);
}

std::uint32_t bit_by_bit(std::span<const std::byte> bytes, std::uint32_t raw) {
  for (const std::byte byte : bytes) {
    raw ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) raw = (raw >> 1) ^ ((raw & 1) ? 0x82F63B78 : 0);
  }
  return raw;
}

std::vector<std::byte> noise(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::mt19937 random(7);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// All sizes around the block sizes of ISA-L's code paths.
TEST(Crc32c, AgreesWithTheDefinitionAtEverySizeAndAlignment) {
  const auto bytes = noise(8192);
  for (std::size_t size = 0; size < 4200; size += size < 1300 ? 1 : 7) {
    const auto part = std::span(bytes).subspan(size % 67, size);
    const std::uint32_t before = 0x9E3779B9u * static_cast<std::uint32_t>(size + 1);
    ASSERT_EQ(crc32c(part, ~before), ~bit_by_bit(part, before)) << size << " bytes";
  }
}

/// A part of `bytes`, often a large one.
std::span<const std::byte> any_part(std::span<const std::byte> bytes) {
  const auto any_of = [](std::size_t end) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::size_t>(0, end));
  };
  return bytes.subspan(any_of(200)).first(any_of(2) == 0 ? any_of(1000) : any_of(200'000));
}

TEST(Crc32c, AnyCutOfAnyBytesGivesTheSame) {
  const auto bytes = noise(300'000);
  EXPECT_TRUE(rc::check([&] {
    const auto part = any_part(bytes);
    const std::size_t cut = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::size_t>(0, part.size() + 1));
    RC_ASSERT(crc32c(part) == crc32c(part.subspan(cut), crc32c(part.first(cut))));
  }));
}

TEST(Digest, CopiesWriteTheBytesAndNothingElse) {
  const auto bytes = noise(300'000);
  std::vector<std::byte> target(bytes.size() + 512);
  EXPECT_TRUE(rc::check([&] {
    const auto part = any_part(bytes);
    const std::size_t at = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::size_t>(0, 300));
    std::fill(target.begin(), target.end(), std::byte{0xA5});
    DigestBuilder builder;
    builder.copy(target.data() + at, part);
    RC_ASSERT(std::move(builder).finish() == digest_of(part));
    RC_ASSERT(std::equal(part.begin(), part.end(), target.begin() + static_cast<std::ptrdiff_t>(at)));
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xA5}; };
    RC_ASSERT(std::all_of(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(at), untouched));
    RC_ASSERT(std::all_of(target.begin() + static_cast<std::ptrdiff_t>(at + part.size()), target.end(), untouched));
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

  DigestBuilder copier;
  std::string copied(bytes.size() + 1, '?');
  const auto to = std::as_writable_bytes(std::span(copied)).subspan(1);
  copier.copy(to.data(), as_bytes(bytes).first(77));
  copier.copy(to.data() + 77, as_bytes(bytes).subspan(77));
  EXPECT_EQ(std::move(copier).finish(), whole);
  EXPECT_EQ(copied.substr(1), bytes);
}

TEST(Digest, ChunksMayHaveOtherSizes) {
  const std::string bytes(200'000, 'y');
  const Digest digest = digest_of(as_bytes(bytes), 65536);
  EXPECT_EQ(digest.chunk_bytes, 65536u);
  ASSERT_EQ(digest.chunks.size(), 4u);
  EXPECT_EQ(digest.chunks[3], crc32c(as_bytes(bytes).subspan(3 * 65536)));
  EXPECT_NE(digest, digest_of(as_bytes(bytes)));
  for (const std::uint64_t bad :
       {std::uint64_t{0}, std::uint64_t{32768}, std::uint64_t{65537}, std::uint64_t{2} << 30}) {
    EXPECT_FALSE(is_digest_chunk(bad));
    EXPECT_THROW(DigestBuilder{bad}, Error);
  }
  EXPECT_TRUE(is_digest_chunk(std::uint64_t{1} << 30));
}

// For any split, the parts' checksums combine into the whole's checksum.
TEST(Crc32c, ChecksumsOfNeighboursJoin) {
  EXPECT_EQ(crc32c_joined(crc32c(as_bytes("1234")), crc32c(as_bytes("56789")), 5), 0xE3069283u);
  EXPECT_TRUE(rc::check([](const std::vector<std::uint8_t>& first, const std::vector<std::uint8_t>& second) {
    auto both = first;
    both.insert(both.end(), second.begin(), second.end());
    const auto crc = [](const std::vector<std::uint8_t>& bytes) { return crc32c(std::as_bytes(std::span(bytes))); };
    RC_ASSERT(crc32c_joined(crc(first), crc(second), second.size()) == crc(both));
  }));
  // A length that is too large to read, in two ways: 2^40 zeros at once, and as 2^20 times 2^20.
  const std::uint32_t begun = crc32c(as_bytes("begun"));
  std::uint32_t zeros = crc32c(std::vector<std::byte>(1 << 20));
  for (std::uint64_t bytes = 1 << 20; bytes < std::uint64_t{1} << 40; bytes *= 2)
    zeros = crc32c_joined(zeros, zeros, bytes);
  std::uint32_t step_by_step = begun;
  const std::uint32_t mebibyte = crc32c(std::vector<std::byte>(1 << 20));
  for (int i = 0; i < 1 << 20; ++i) step_by_step = crc32c_joined(step_by_step, mebibyte, 1 << 20);
  EXPECT_EQ(crc32c_joined(begun, zeros, std::uint64_t{1} << 40), step_by_step);
}

}  // namespace
}  // namespace tessera::format
