#pragma once
/// \file
/// Byte-pair encoding of one word: starting from the bytes' symbols, the adjacent pair with the lowest rank is joined
/// (the leftmost one on ties) until no adjacent pair has a rank. Sennrich et al. 2016, arXiv:1508.07909.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::text {

/// left + right -> result. Its rank is its index in the list of merges.
struct Merge {
  std::int32_t left, right, result;
};

/// Immutable.
class BpeModel {
 public:
  static constexpr std::int32_t no_token = -1;

  /// byte_ids: the symbol of each byte, or no_token: such a byte becomes `unknown.id` (or is dropped if that is
  /// no_token; with `fuse`, each run of such bytes becomes one id). If a pair occurs twice, the last one counts.
  struct Unknown {
    std::int32_t id = no_token;
    bool fuse = false;
  };
  BpeModel(const std::array<std::int32_t, 256>& byte_ids, std::span<const Merge> merges, Unknown unknown);

  /// Appends the symbols of one word. O(n^2) with a small constant for short words, O(n log n) for long ones.
  void encode_word(std::string_view bytes, std::vector<std::int32_t>& out) const;

  /// The same for symbols that are already ids; overwrites them.
  void join(std::span<std::int32_t> symbols, std::vector<std::int32_t>& out) const;

 private:
  struct Slot {
    std::uint64_t pair = empty;
    std::uint32_t rank = 0;
    std::int32_t result = 0;
  };
  static constexpr std::uint64_t empty = ~std::uint64_t{0};
  static constexpr std::uint32_t no_rank = ~std::uint32_t{0};

  const Slot* find(std::int32_t left, std::int32_t right) const;
  std::uint32_t rank(std::int32_t left, std::int32_t right) const;
  void join_short(std::span<std::int32_t> symbols, std::vector<std::int32_t>& out) const;
  void join_long(std::span<std::int32_t> symbols, std::vector<std::int32_t>& out) const;

  std::array<std::int32_t, 256> byte_ids_;
  Unknown unknown_;
  std::vector<Slot> slots_;  ///< open addressing; the size is a power of two, and at most half of the slots are in use
};

}  // namespace tessera::text
