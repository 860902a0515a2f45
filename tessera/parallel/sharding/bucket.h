#pragma once
/// \file
/// Gradient buckets: flat buffers in which the gradients of several parameters lie side by side and are reduced
/// together.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/parallel/compression/compression.h>
#include <tessera/parallel/replicas.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::parallel {

/// One bucket. After the gradients, `flat` ends in two numbers per parameter, [used..., missing...]: 1 where this rank
/// has a gradient to give, or has none. Reduced with the rest, they tell every rank which parameters were used anywhere
/// and missed anywhere, without another collective; being above zero survives any dtype and the division of a mean.
struct Bucket {
  at::Tensor flat;                      ///< [padded gradients + 2 * parameters]
  std::vector<std::size_t> parameters;  ///< indices into the list that make_buckets() got
  std::vector<at::Tensor> views;        ///< the gradients, in the parameters' shapes and strides
  at::Tensor tail;                      ///< [2 * parameters], a view of flat
  /// Fixed order only: the sums over the micro-batches so far, laid out as flat and views. (Else grad() is the view.)
  at::Tensor sum, sum_tail;
  std::vector<at::Tensor> sum_views;
  std::size_t pending = 0;  ///< gradients that this backward has not produced yet
  bool started = false;
  comm::Work work, tail_work;  ///< the latter with compression only, which leaves the tail alone
  std::vector<CompressedSegment> segments;
};

/// Parameter indices per bucket, in reduction order: layout::assign_buckets over `order`, one dtype per bucket.
std::vector<std::vector<std::size_t>> assign(std::span<const NamedTensor> parameters,
                                             std::span<const std::size_t> order, std::int64_t first_bucket_bytes,
                                             std::int64_t bucket_bytes);

/// Zero-filled buckets for an assignment, on the parameters' device, in shared memory when the group's backend reads
/// it there. `fixed_order`: with sums.
std::vector<Bucket> make_buckets(const comm::Group& group, std::span<const NamedTensor> parameters,
                                 const std::vector<std::vector<std::size_t>>& assignment, bool fixed_order);

}  // namespace tessera::parallel
