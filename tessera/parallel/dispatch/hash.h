#pragma once
/// \file
/// A fast 64-bit hash of bytes, to check whether two ranks hold the same bits. Not cryptographic. Depends only on the
/// bytes and their number.

#include <cstddef>
#include <cstdint>

namespace tessera::parallel {

std::uint64_t hash_bytes(const void* data, std::size_t size);

}  // namespace tessera::parallel
