#pragma once
/// \file
/// A prefix tree over bytes: finds all keys that are prefixes of a text in one traversal.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Edges are stored in one hash table with open addressing, so building is linear and a step costs one or two probes.
/// Immutable after building: any number of threads may read.
class Trie {
 public:
  static constexpr std::int32_t none = -1;

  Trie() { values_.push_back(none); }

  /// Adds a key with a value >= 0. An existing key gets the new value; an empty key is ignored.
  void add(std::string_view key, std::int32_t value);

  /// Calls found(bytes, value) for each key that is a prefix of `text`, shortest first.
  template <class Found>
  void for_each_prefix(std::string_view text, const Found& found) const {
    std::uint32_t node = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) return;
      if (values_[node] != none) found(at + 1, values_[node]);
    }
  }

  /// The value of a key; `none` if it is not in the tree.
  std::int32_t find(std::string_view key) const;

 private:
  struct Edge {
    std::uint32_t key = 0;  ///< node << 8 | byte, plus one; 0: empty
    std::uint32_t node = 0;
  };
  static std::uint32_t key_of(std::uint32_t node, unsigned char byte) { return (node << 8 | byte) + 1; }
  static std::size_t mix(std::uint32_t key) {
    const std::uint64_t product = key * 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(product >> 32);
  }
  std::uint32_t child(std::uint32_t node, unsigned char byte) const {
    if (edges_.empty()) return 0;
    const std::size_t mask = edges_.size() - 1;
    const std::uint32_t key = key_of(node, byte);
    for (std::size_t at = mix(key) & mask;; at = (at + 1) & mask) {
      if (edges_[at].key == key) return edges_[at].node;
      if (edges_[at].key == 0) return 0;
    }
  }
  void insert(std::uint32_t key, std::uint32_t node);
  void grow();

  std::vector<Edge> edges_;           ///< the size is a power of two, and at most half of the slots are in use
  std::vector<std::int32_t> values_;  ///< by node; node 0 is the root
};

}  // namespace tessera::text
