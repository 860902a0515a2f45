#include <tessera/checkpoint/finite.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <tessera/base/error.h>

namespace tessera::checkpoint {
namespace {

/// IEEE 754: an exponent with all bits set marks an infinity or NaN. Processes branch-free blocks so that the compiler
/// vectorizes.
template <class Word>
bool none_with_all(std::span<const std::byte> bytes, Word exponent) {
  constexpr std::size_t block = 1024;
  Word words[block];
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t n = std::min(sizeof words, bytes.size() - done);
    std::memcpy(words, bytes.data() + done, n);
    Word found = 0;
    for (std::size_t i = 0; i < n / sizeof(Word); ++i)
      found = static_cast<Word>(found | ((words[i] & exponent) == exponent));
    if (found != 0) return false;
    done += n;
  }
  return true;
}

}  // namespace

bool all_finite(std::span<const std::byte> bytes, format::DType dtype) {
  switch (dtype) {
    case format::DType::f64:
      return none_with_all<std::uint64_t>(bytes, 0x7FF0'0000'0000'0000);
    case format::DType::f32:
      return none_with_all<std::uint32_t>(bytes, 0x7F80'0000);
    case format::DType::bf16:
      return none_with_all<std::uint16_t>(bytes, 0x7F80);
    case format::DType::f16:
      return none_with_all<std::uint16_t>(bytes, 0x7C00);
    default:
      return true;
  }
}

std::string not_finite_text(const std::string& tensor) {
  return concat(tensor, " contains values that are not finite (infinities or NaN): such a checkpoint would be useless");
}

}  // namespace tessera::checkpoint
