#pragma once
/// \file
/// An open file of a ZeRO checkpoint (deepspeed_checkpoint.h): typed access to its description (a pickle read as data,
/// pickle.h), and the bytes of its tensors. Errors are InputErrors that name the file.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/torch/pickle.h>
#include <tessera/format/torch/torch_file.h>

namespace tessera::format::deepspeed {

std::string shape_text(const std::vector<std::int64_t>& shape);  ///< "[3, 4]"

/// A file written by torch.save. May be used by one thread at a time.
class StateFile {
 public:
  /// `contents`, the whole file, must outlive this object; `where` is for messages.
  StateFile(const std::string& where, std::span<const std::byte> contents);
  const std::string path;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(path, ": ", parts...));
  }

  const PickleNode& root() const { return archive_.pickle().root(); }
  const PickleNode& node(std::uint32_t index) const { return archive_.pickle()[index]; }
  const Pickle& pickle() const { return archive_.pickle(); }
  /// The value of a dict's key; nullptr if the key is missing or the value is None.
  const PickleNode* find(const PickleNode& dict, std::string_view key) const;
  const PickleNode& member(const PickleNode& dict, std::string_view key) const;
  /// Returns a text of limited length, which is safe to copy.
  std::string_view name(const PickleNode& value, std::string_view what) const;
  /// A dict's members with their names, in its order. Throws for duplicate names.
  std::vector<std::pair<std::string_view, const PickleNode*>> items(const PickleNode& dict,
                                                                    std::string_view what) const;
  /// The items of a list or tuple.
  const std::vector<std::uint32_t>& list(const PickleNode& value, std::string_view what) const;
  /// A non-negative integer.
  std::int64_t integer(const PickleNode& value, std::string_view what) const;
  /// The shape of a tensor; `name` is used in messages.
  std::vector<std::int64_t> shape(const PickleNode& value, const std::string& name) const;

  bool is_tensor(const PickleNode& value) const { return archive_.is_tensor(value); }
  TorchTensor tensor(const PickleNode& value, const std::string& name) { return archive_.tensor(value, name); }
  /// The bytes [begin, end) of the file, which must be inside the given storage. A storage's checksum is verified on
  /// first access.
  std::span<const std::byte> bytes(std::size_t storage, std::uint64_t begin, std::uint64_t end);

 private:
  std::span<const std::byte> contents_;
  TorchArchive archive_;
  std::set<std::size_t> verified_;
};

/// Opens a regular file.
std::shared_ptr<StateFile> open_state(const std::string& path);

/// Opens the files of a checkpoint by path: open_state, or a reader of data already in memory.
using OpenState = std::function<std::shared_ptr<StateFile>(const std::string& path)>;

/// The product of the dimensions, which must fit int64; `name` is for messages.
std::uint64_t elements_of(const StateFile& file, const std::string& name, const std::vector<std::int64_t>& shape);

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
};

/// Reads `dict`, which contains shapes by name. `names`: the names read so far; none of them may occur again.
std::vector<Parameter> read_shapes(const StateFile& file, const PickleNode& dict, std::string_view what,
                                   std::set<std::string_view>& names);

}  // namespace tessera::format::deepspeed
