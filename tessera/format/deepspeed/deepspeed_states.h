#pragma once
/// \file
/// A file of a ZeRO checkpoint (deepspeed_checkpoint.h), open: its description (a pickle read as data, pickle.h) by the
/// kinds of values that are expected, and the bytes of its tensors. Errors are InputErrors that name the file.

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

/// What torch.save wrote. One thread at a time.
class StateFile {
 public:
  /// `contents`, the whole file, must outlive it; `where` is for messages.
  StateFile(const std::string& where, std::span<const std::byte> contents);
  const std::string path;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(path, ": ", parts...));
  }

  const PickleNode& root() const { return archive_.pickle().root(); }
  const PickleNode& node(std::uint32_t index) const { return archive_.pickle()[index]; }
  const Pickle& pickle() const { return archive_.pickle(); }
  /// The value of a dict's key; nullptr: there is none, or it is None.
  const PickleNode* find(const PickleNode& dict, std::string_view key) const;
  const PickleNode& member(const PickleNode& dict, std::string_view key) const;
  /// A name that may be copied.
  std::string_view name(const PickleNode& value, std::string_view what) const;
  /// What a dict holds, by names, in its order. None comes twice.
  std::vector<std::pair<std::string_view, const PickleNode*>> items(const PickleNode& dict,
                                                                    std::string_view what) const;
  /// A list's or tuple's items.
  const std::vector<std::uint32_t>& list(const PickleNode& value, std::string_view what) const;
  /// Not negative.
  std::int64_t integer(const PickleNode& value, std::string_view what) const;
  /// The shape of a tensor; `name` is what messages call it.
  std::vector<std::int64_t> shape(const PickleNode& value, const std::string& name) const;

  bool is_tensor(const PickleNode& value) const { return archive_.is_tensor(value); }
  TorchTensor tensor(const PickleNode& value, const std::string& name) { return archive_.tensor(value, name); }
  /// From `begin` to `end` of the file, which lie in that storage. A storage's checksum is looked at when it is first
  /// asked for.
  std::span<const std::byte> bytes(std::size_t storage, std::uint64_t begin, std::uint64_t end);

 private:
  std::span<const std::byte> contents_;
  TorchArchive archive_;
  std::set<std::size_t> verified_;
};

/// Opens a regular file.
std::shared_ptr<StateFile> open_state(const std::string& path);

/// What opens the files of a checkpoint by their paths: open_state, or a reader of what is already in memory.
using OpenState = std::function<std::shared_ptr<StateFile>(const std::string& path)>;

/// The product, which fits int64; `name` is for messages.
std::uint64_t elements_of(const StateFile& file, const std::string& name, const std::vector<std::int64_t>& shape);

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
};

/// `dict`: shapes by name. `names`: those so far, none of which may come again.
std::vector<Parameter> read_shapes(const StateFile& file, const PickleNode& dict, std::string_view what,
                                   std::set<std::string_view>& names);

}  // namespace tessera::format::deepspeed
