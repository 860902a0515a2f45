#pragma once
/// \file
/// SHA-256 (FIPS 180-4), HMAC (RFC 2104), and what goes with them: random bytes of the kernel and a comparison whose
/// duration tells nothing. Written here because nothing that we link brings them, and they are a page.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::launch {

using Digest = std::array<std::uint8_t, 32>;

/// SHA-256 of what update() was given so far, in any pieces.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::uint8_t> bytes);
  /// Ends the message. Afterwards only assignment is allowed.
  Digest finish();

 private:
  void compress(const std::uint8_t* blocks, std::size_t count);

  std::array<std::uint32_t, 8> state_;
  std::array<std::uint8_t, 64> rest_;  // the bytes of the last, incomplete block
  std::uint64_t bytes_ = 0;
};

/// HMAC-SHA256 in pieces.
class Hmac {
 public:
  explicit Hmac(std::span<const std::uint8_t> key);
  Hmac& update(std::span<const std::uint8_t> bytes);
  Hmac& update(std::string_view text);
  Digest finish();

 private:
  Sha256 inner_, outer_;
};

/// a == b in a time that depends only on the lengths.
bool equal_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

/// Fills `bytes` from getrandom(2). Throws Error when the kernel has none (it waits for its seeding at boot).
void random_bytes(std::span<std::uint8_t> bytes);

}  // namespace tessera::launch
