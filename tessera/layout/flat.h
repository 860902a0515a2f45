#pragma once
/// \file
/// Flat layouts: how named parameters lie in one padded buffer that divides over ranks. Pure arithmetic: the
/// reducer, the sharding engine, the optimizer, the checkpoint and the planner all use these very functions.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::layout {

/// A parameter as the layout sees it. Sizes in elements; element_size in bytes.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t element_size = 4;
  std::int64_t numel() const;
};

/// One parameter's place in a flat buffer: elements [offset, offset + numel).
struct Segment {
  std::size_t parameter;  ///< index into the list the layout was made from
  std::int64_t offset;
  std::int64_t numel;
};

/// A flat buffer of `padded` elements over `world` equal shards; padded % (world * alignment) == 0; segments do not
/// overlap, are in the order given, and each begins on a multiple of `alignment` elements (64 x 4 bytes = 4 cache lines).
struct FlatLayout {
  std::vector<Segment> segments;
  std::int64_t padded = 0;
  int world = 1;
  std::int64_t shard_numel() const { return padded / world; }
};

inline constexpr std::int64_t flat_alignment = 64;  ///< elements

/// Lays out `parameters[order[0]], parameters[order[1]], ...`. Throws InputError on overflow or a negative size.
FlatLayout make_flat_layout(std::span<const Parameter> parameters, std::span<const std::size_t> order, int world,
                            std::int64_t alignment = flat_alignment);

/// The part of a segment that lies in `rank`'s shard: elements [begin, end) *of the flat buffer*; empty when begin == end.
struct Range { std::int64_t begin, end; };
Range shard_range(const FlatLayout& layout, int rank);
Range intersect(Range a, Range b);

/// PyTorch DDP's rule (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size): walk `order`,
/// close a bucket once it holds at least its cap; the first bucket's cap is smaller so that communication starts early.
/// Every bucket holds one element size only. Returns lists of parameter indices in reduction order.
std::vector<std::vector<std::size_t>> assign_buckets(std::span<const Parameter> parameters, std::span<const std::size_t> order,
                                                     std::int64_t first_bucket_bytes, std::int64_t bucket_bytes);

}  // namespace tessera::layout
