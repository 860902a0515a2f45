#pragma once
/// \file
/// Flat layouts: the positions of named parameters in one padded buffer that is divided evenly over ranks. Pure
/// arithmetic, shared by the reducer, the sharding engine, the optimizer, the checkpoint and the planner.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::layout {

/// A parameter's properties for the layout. Sizes are in elements, element_size in bytes.
struct Parameter {
  std::string name;                 ///< for messages
  std::vector<std::int64_t> shape;  ///< {}: a scalar
  std::int64_t element_size = 4;    ///< in bytes
  /// Product of the shape, 1 for a scalar. Throws InputError naming the parameter on overflow or a negative size.
  std::int64_t numel() const;
  /// numel() * element_size. Throws InputError on overflow or an element size below 1.
  std::int64_t bytes() const;
};

/// A parameter's position in a flat buffer: elements [offset, offset + numel).
struct Segment {
  std::size_t parameter;  ///< index into the list that the layout was made from
  std::int64_t offset;    ///< from the start of the buffer, in elements
  std::int64_t numel;     ///< elements of the parameter, without padding
};

/// A flat buffer of `padded` elements in `world` equal shards; padded % (world * alignment) == 0. Segments do not
/// overlap, keep the given order, and each starts at a multiple of `alignment` elements (64 x 4 bytes = 4 cache lines).
struct FlatLayout {
  std::vector<Segment> segments;                               ///< in buffer order
  std::int64_t padded = 0;                                     ///< elements of the whole buffer
  int world = 1;                                               ///< ranks, one shard each
  std::int64_t shard_numel() const { return padded / world; }  ///< elements of one shard, padding included
};

inline constexpr std::int64_t flat_alignment = 64;  ///< elements

/// Lays out `parameters[order[0]], parameters[order[1]], ...`; `order` may name a subset of the parameters, each at
/// most once. Throws InputError on overflow or a negative size, and Error for an invalid `order`, `world` or
/// `alignment`.
FlatLayout make_flat_layout(std::span<const Parameter> parameters, std::span<const std::size_t> order, int world,
                            std::int64_t alignment = flat_alignment);

/// Elements [begin, end) *of a flat buffer*; empty when begin == end.
struct Range {
  std::int64_t begin, end;  ///< half open, in elements
};
/// The elements of the flat buffer in `rank`'s shard: shards are equal and in rank order.
Range shard_range(const FlatLayout& layout, int rank);
/// The intersection of two ranges; empty if they are disjoint. The part of a segment in a shard is intersect({offset,
/// offset + numel}, shard_range(...)).
Range intersect(Range a, Range b);

/// PyTorch DDP's rule (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size): walks `order` and
/// closes a bucket once its size reaches its cap; the first bucket's cap is smaller so that communication starts early.
/// All parameters of a bucket have the same element size; as in PyTorch, each element size fills its own bucket and has
/// its own small first one. Returns lists of parameter indices in reduction order: a bucket's position is that of its
/// last parameter in `order`, because it can only be reduced then. Throws InputError on overflow or a negative size or
/// cap.
std::vector<std::vector<std::size_t>> assign_buckets(std::span<const Parameter> parameters,
                                                     std::span<const std::size_t> order,
                                                     std::int64_t first_bucket_bytes, std::int64_t bucket_bytes);

}  // namespace tessera::layout
