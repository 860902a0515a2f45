#pragma once
/// \file
/// Python's pickle, read as data: the stream is parsed into a tree of values, and nothing is ever called. A class or
/// function is a pair of names; "calling" it makes an object node with that name and the arguments. A name that the
/// caller does not allow is an error. Supports protocols 0 to 5, with the opcodes that Python's own pickler and
/// torch.save write (Lib/pickletools.py).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {

enum class PickleKind { none, boolean, integer, real, text, bytes, tuple, list, set, dict, global, object, persistent };
const char* pickle_kind_name(PickleKind kind);

/// A value. Child values are indices into the same Pickle.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  std::int64_t integer = 0;  ///< integer; boolean: 0 or 1
  double real = 0;
  std::string text;  ///< the text (UTF-8) or bytes; global: "module.name"
  /// tuple, list, set: the items; dict: key, value, key, value, ...; object: the callable (a global), its arguments (a
  /// tuple), its state if it has one, then appended or set items; persistent: the id.
  std::vector<std::uint32_t> items;
};

/// Immutable after parsing: any number of threads may read. A list or dict may contain itself: traverse it by its known
/// structure, or with a limit.
class Pickle {
 public:
  const PickleNode& root() const { return nodes_[root_]; }
  const PickleNode& operator[](std::uint32_t index) const { return nodes_[index]; }
  std::size_t size() const { return nodes_.size(); }

  /// The value of a dict's text key; nullptr: not found.
  const PickleNode* find(const PickleNode& dict, std::string_view key) const;
  /// Whether the node is an object created by that global ("collections.OrderedDict").
  bool is_a(const PickleNode& node, std::string_view global) const;
  /// An object's arguments (a tuple's items), and its state (nullptr: none).
  std::span<const std::uint32_t> arguments(const PickleNode& object) const;
  const PickleNode* state(const PickleNode& object) const;

 private:
  friend class PickleReader;
  std::vector<PickleNode> nodes_;
  std::uint32_t root_ = 0;
};

/// Parses the pickle at the start of `bytes`; `used` (may be nullptr) receives its length. `allowed`: full names of
/// globals ("torch.FloatStorage"); a name that ends in '.' allows the module, and "*" every name (for files with
/// objects of arbitrary classes, where the caller inspects only those it knows). Throws InputError naming `name`, the
/// offset and the rule: an unsupported opcode or global, an operand beyond the end, a stack without the opcode's
/// operands, an integer beyond 64 bits, ill-formed UTF-8, more nodes than bytes. Memory is bounded by a small multiple
/// of the number of bytes.
Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& name,
                    std::span<const std::string_view> allowed, std::size_t* used = nullptr);

}  // namespace tessera::format
