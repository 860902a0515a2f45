#pragma once
/// \file
/// Python's pickle, read as data: what a stream describes becomes a tree of values, and nothing is ever called. A class
/// or function is a pair of names, "calling" it makes an object node with those names and arguments. Names that the
/// caller did not allow end the reading. Protocols 0 to 5, the opcodes that Python's own pickler and torch.save write
/// (Lib/pickletools.py).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {

enum class PickleKind { none, boolean, integer, real, text, bytes, tuple, list, set, dict, global, object, persistent };
const char* pickle_kind_name(PickleKind kind);

/// A value. Others that it consists of are indices into the same Pickle.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  std::int64_t integer = 0;  ///< integer; boolean: 0 or 1
  double real = 0;
  std::string text;  ///< text (UTF-8), bytes; global: "module.name"
  /// tuple, list, set: the items; dict: key, value, key, value, ...; object: what was called (a global), its arguments
  /// (a tuple), then its state when it was given one, then items that were appended or set; persistent: the id.
  std::vector<std::uint32_t> items;
};

/// Immutable after reading: any number of threads may read. A list or dict may contain itself: walk it by its known
/// structure, or with a bound.
class Pickle {
 public:
  const PickleNode& root() const { return nodes_[root_]; }
  const PickleNode& operator[](std::uint32_t index) const { return nodes_[index]; }
  std::size_t size() const { return nodes_.size(); }

  /// The value of a dict's text key; nullptr: none.
  const PickleNode* find(const PickleNode& dict, std::string_view key) const;
  /// Whether the node is an object made by that global ("collections.OrderedDict").
  bool is_a(const PickleNode& node, std::string_view global) const;
  /// The arguments (a tuple's items) and the state (nullptr: none) of an object.
  std::span<const std::uint32_t> arguments(const PickleNode& object) const;
  const PickleNode* state(const PickleNode& object) const;

 private:
  friend class PickleReader;
  std::vector<PickleNode> nodes_;
  std::uint32_t root_ = 0;
};

/// Reads the one pickle that `bytes` begins with; `used` (may be nullptr) gets its length. `allowed`: full names of
/// globals ("torch.FloatStorage"), a name that ends in '.' allows the module, "*" every name: for files that hold
/// objects of classes nobody can list, of which the caller looks at none that it does not know. Throws InputError
/// naming `name`, the offset, the rule: another opcode or global, an operand beyond the end, a stack that does not hold
/// what the opcode needs, an integer beyond 64 bits, ill-formed UTF-8, more nodes than bytes. Memory is bounded by a
/// small multiple of the number of bytes.
Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& name,
                    std::span<const std::string_view> allowed, std::size_t* used = nullptr);

}  // namespace tessera::format
