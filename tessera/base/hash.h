#pragma once
/// \file
/// Hashes that are the same on every machine and in every version.

#include <cstdint>
#include <string_view>

namespace tessera {

/// FNV-1a of `bytes`, 64 bits (Fowler, Noll, Vo). Pass a previous result as `hash` to hash data piece by piece.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tessera
