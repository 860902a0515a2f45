#pragma once
/// \file
/// The files of a ZeRO checkpoint (deepspeed_checkpoint.h), found and opened: which file is whose, each one's description, and the flat groups of
/// all ranks, checked against each other. Errors are InputErrors that name the file.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/pickle.h>
#include <tessera/format/torch_file.h>

namespace tessera::format::deepspeed {

inline constexpr const char* latest_file = "latest";

std::string shape_text(const std::vector<std::int64_t>& shape);  ///< "[3, 4]"

/// What a folder holds by rank.
struct Folder {
  std::string path;                              ///< TAG
  std::map<std::int64_t, std::string> optimizer; ///< plain names
  std::map<std::int64_t, std::string> model;     ///< -1: the one of all ranks
};

/// `folder`: the one with `latest`, or that of a tag. Refused: names that lead elsewhere, files of other kinds of parallelism, of one rank twice.
Folder list_states(const std::string& folder);

/// A file of torch.save, open; storages are verified once, when they are first read. One thread at a time.
struct StateFile {
  explicit StateFile(const std::string& path);
  std::string path;
  MappedFile mapping;
  TorchArchive archive;
  std::set<std::size_t> verified;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(path, ": ", parts...));
  }
  /// Of a storage; from `begin` to `end` of the file.
  std::span<const std::byte> bytes(std::size_t storage, std::uint64_t begin, std::uint64_t end);
  const PickleNode& root() const { return archive.pickle().root(); }
  const PickleNode& node(std::uint32_t index) const { return archive.pickle()[index]; }
  /// The value of a dict's key; nullptr: there is none, or it is None.
  const PickleNode* find(const PickleNode& dict, std::string_view key) const;
  const PickleNode& member(const PickleNode& dict, std::string_view key) const;
  /// A name that may be copied.
  std::string_view name(const PickleNode& value, std::string_view what) const;
  /// What a dict holds, by names, in its order. None comes twice.
  std::vector<std::pair<std::string_view, const PickleNode*>> items(const PickleNode& dict, std::string_view what) const;
  /// A list's or tuple's items.
  const std::vector<std::uint32_t>& list(const PickleNode& value, std::string_view what) const;
  /// Not negative.
  std::int64_t integer(const PickleNode& value, std::string_view what) const;
};

/// The product, which fits int64; `name` is for messages.
std::uint64_t elements_of(const StateFile& file, const std::string& name, const std::vector<std::int64_t>& shape);

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
};

/// `dict`: shapes by name. `names`: those so far, none of which may come again.
std::vector<Parameter> read_shapes(const StateFile& file, const PickleNode& dict, std::string_view what, std::set<std::string_view>& names);

/// What a file of an optimizer holds.
struct Rank {
  std::shared_ptr<StateFile> file;
  std::int64_t stage = 0, ranks = 0;
  std::vector<TorchTensor> groups;                    ///< flat, contiguous, of one dtype
  std::vector<std::vector<std::int64_t>> alignments;  ///< by group and parameter, elements behind it; empty: none are said
};

/// All ranks', which are of one run: same stage, number of ranks and groups, dtype; none is missing.
std::vector<Rank> read_ranks(const Folder& folder);

}  // namespace tessera::format::deepspeed
