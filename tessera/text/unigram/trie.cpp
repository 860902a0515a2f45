#include <tessera/base/error.h>
#include <tessera/text/unigram/trie.h>

#include <utility>

namespace tessera::text {

void Trie::insert(std::uint32_t key, std::uint32_t node) {
  const std::size_t mask = edges_.size() - 1;
  std::size_t at = mix(key) & mask;
  while (edges_[at].key != 0) at = (at + 1) & mask;
  edges_[at] = {key, node};
}

void Trie::grow() {
  std::vector<Edge> old = std::exchange(edges_, std::vector<Edge>(edges_.empty() ? 1024 : edges_.size() * 2));
  for (const Edge& edge : old)
    if (edge.key != 0) insert(edge.key, edge.node);
}

void Trie::add(std::string_view key, std::int32_t value) {
  if (key.empty()) return;
  constexpr std::size_t most_nodes = (std::size_t{1} << 24) - 1;  // a node and a byte together fit 32 bits
  std::uint32_t node = 0;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      if (values_.size() >= most_nodes)
        throw InputError(concat("the tokens of this vocabulary have more than ", most_nodes, " different prefixes"));
      if (values_.size() * 2 >= edges_.size()) grow();
      next = static_cast<std::uint32_t>(values_.size());
      values_.push_back(none);
      insert(key_of(node, byte), next);
    }
    node = next;
  }
  values_[node] = value;
}

std::int32_t Trie::find(std::string_view key) const {
  std::uint32_t node = 0;
  for (const char c : key) {
    node = child(node, static_cast<unsigned char>(c));
    if (node == 0) return none;
  }
  return values_[node];
}

}  // namespace tessera::text
