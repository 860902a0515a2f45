#pragma once
/// \file
/// NAME.safetensors.index.json for tensors that are stored in pieces: which file holds which elements of which tensor.
/// What a checkpoint keeps of the optimizer, each rank's part in its own file:
///
///   {"format": "tessera-pieces-1",
///    "metadata": {"total_size": 1234},
///    "tensors": {"exp_avg.h.0.weight": {"dtype": "F32", "shape": [768, 768], "pieces": [
///        {"file": "optimizer-00001-of-00002.safetensors", "begin": 0, "end": 294912},
///        {"file": "optimizer-00002-of-00002.safetensors", "begin": 294912, "end": 589824}]}}}
///
/// A piece is a one-dimensional tensor of its file, named like the tensor ("key" names another): elements [begin, end)
/// of the flattened tensor, or, with "box": {"offset": [..], "shape": [..]}, of the flattened box (layout/region.h).

#include <tessera/format/safetensors/safetensors.h>
#include <tessera/layout/region.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {

/// A part of one tensor, as one file holds it.
struct StoredPiece {
  std::string file;       ///< plain name inside the folder
  std::string key;        ///< the tensor's name in that file
  layout::Region region;  ///< region of the whole tensor
  bool operator==(const StoredPiece&) const = default;
};

/// A whole tensor and the pieces in which it is stored.
struct StoredTensor {
  std::string name;                 ///< the tensor's, whatever the pieces' keys are
  DType dtype = DType::f32;         ///< the same in all pieces
  std::vector<std::int64_t> shape;  ///< shape of the whole tensor; {}: a scalar
  std::vector<StoredPiece> pieces;  ///< no two share an element, together they are the whole tensor
  bool operator==(const StoredTensor&) const = default;
};

/// Which pieces in which files hold each tensor of a checkpoint.
struct StateIndex {
  std::vector<StoredTensor> tensors;  ///< names differ; sorted by name
  bool operator==(const StateIndex&) const = default;
};

/// Pieces that an index may list, and comparisons of two pieces that checking it may take: what bounds the work that a
/// hostile file can ask for to about two seconds.
inline constexpr std::size_t kMostPieces = std::size_t{1} << 20;
inline constexpr std::size_t kMostComparisons = std::size_t{1} << 24;

/// Parses and checks an index: names of files plain and ending in ".safetensors", no two pieces the same tensor of a
/// file, known dtypes, shapes whose bytes are fewer than 2^63, regions inside their tensor, together covering every
/// element exactly once; total_size, when given, is what the tensors have. Throws InputError with position, tensor,
/// rule, numbers; nothing is allocated by what the text merely claims. `path` is for messages.
StateIndex parse_state_index(std::string_view text, const std::string& path);
/// The text of an index, a line for each tensor: what parse_state_index reads, if the pieces are as StoredTensor says.
/// Tensors may be in any order. Throws Error on a name that is there twice.
std::string state_index_text(const StateIndex& index);

}  // namespace tessera::format
