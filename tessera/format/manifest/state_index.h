#pragma once
/// \file
/// NAME.safetensors.index.json for tensors stored in pieces: specifies which file contains which elements of which
/// tensor. A checkpoint's optimizer state uses it, with one file per rank:
///
///   {"format": "tessera-pieces-1",
///    "metadata": {"total_size": 1234},
///    "tensors": {"exp_avg.h.0.weight": {"dtype": "F32", "shape": [768, 768], "pieces": [
///        {"file": "optimizer-00001-of-00002.safetensors", "begin": 0, "end": 294912},
///        {"file": "optimizer-00002-of-00002.safetensors", "begin": 294912, "end": 589824}]}}}
///
/// A piece is a one-dimensional tensor of its file, with the name of the tensor ("key" sets another name): elements
/// [begin, end) of the flattened tensor or, with "box": {"offset": [..], "shape": [..]}, of the flattened box
/// (layout/region.h).

#include <tessera/format/safetensors/safetensors.h>
#include <tessera/layout/region.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {

/// A part of one tensor, stored in one file.
struct StoredPiece {
  std::string file;       ///< plain name of a file inside the folder
  std::string key;        ///< the tensor's name in that file
  layout::Region region;  ///< region of the whole tensor
  bool operator==(const StoredPiece&) const = default;
};

/// A whole tensor and the pieces in which it is stored.
struct StoredTensor {
  std::string name;                 ///< the tensor's name, whatever the pieces' keys are
  DType dtype = DType::f32;         ///< the same for all pieces
  std::vector<std::int64_t> shape;  ///< shape of the whole tensor; {}: a scalar
  std::vector<StoredPiece> pieces;  ///< disjoint; together they cover the whole tensor
  bool operator==(const StoredTensor&) const = default;
};

/// Maps each tensor of a checkpoint to its pieces in files.
struct StateIndex {
  std::vector<StoredTensor> tensors;  ///< unique names; sorted by name
  bool operator==(const StateIndex&) const = default;
};

/// Limits on the pieces of an index and on the comparisons needed to check it: they bound the time that a hostile file
/// can cost to about two seconds.
inline constexpr std::size_t kMostPieces = std::size_t{1} << 20;
inline constexpr std::size_t kMostComparisons = std::size_t{1} << 24;

/// Parses and checks an index: file names are plain and end in ".safetensors"; no two pieces are the same tensor of a
/// file; dtypes are known; tensors have fewer than 2^63 bytes; regions are inside their tensor and together cover every
/// element exactly once; total_size, if given, matches the tensors. Throws InputError with position, tensor, rule,
/// numbers; allocations never depend on sizes that the text merely claims. `path` is for messages.
StateIndex parse_state_index(std::string_view text, const std::string& path);
/// The text of an index, one line per tensor: readable by parse_state_index if the pieces meet StoredTensor's
/// conditions. Tensors may be in any order. Throws Error for a duplicate name.
std::string state_index_text(const StateIndex& index);

}  // namespace tessera::format
