#pragma once
/// \file
/// SHA-256 from libcrypto, HMAC (RFC 2104) built on it, random bytes from the kernel, and a constant-time comparison.

#include <openssl/sha.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::launch {

using Digest = std::array<std::uint8_t, 32>;

/// SHA-256 of all bytes passed to update(), in any pieces.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::uint8_t> bytes);
  /// Ends the message. Afterwards only assignment is allowed.
  Digest finish();

 private:
  SHA256_CTX state_;
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

/// a == b, in time that depends only on the lengths.
bool equal_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

/// Fills `bytes` from getrandom(2), which blocks until it is seeded at boot. Throws Error when the kernel lacks it.
void random_bytes(std::span<std::uint8_t> bytes);

}  // namespace tessera::launch
