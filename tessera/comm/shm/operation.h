#pragma once
/// \file
/// One operation of a group on raw memory: what WorkQueue (work_queue.h) runs.

#include <tessera/kernels/cpu/reduce.h>
#include <tessera/launch/watch/record.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::comm::shm {

/// Sizes in bytes; R = ranks of the group.
///   op              input       output
///   broadcast       -           [n], the root's is sent
///   reduce          -           [n], the root's is replaced
///   all_reduce      -           [n]
///     accumulates   [n]         [n], the same on every rank before and after
///   scatter         root: [R n] [n]
///   gather          [n]         root: [R n]
///   all_gather      [n]         [R n]; input may be this rank's part of output
///   reduce_scatter  [R n]       [n]
///     accumulates   [R n]       [n]
///   all_to_all      by splits   by splits
///   send, recv      -           [n]
struct Operation {
  launch::Entry entry;  ///< its record: compared between the ranks, named in errors; op chooses what is done
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t part_bytes = 0;  ///< n
  int root = -1;               ///< rank in the group; a message's destination or source
  int tag = 0;
  kernels::Number number = kernels::Number::fp32;  ///< the type that reductions add
  kernels::Fold fold = kernels::Fold::sum;
  /// all_reduce and reduce_scatter: the fold starts with the output, which is fp32 if the input is bf16 or fp16 (n
  /// counts the input's bytes).
  bool accumulates = false;
  std::vector<std::size_t> input_splits, output_splits;  ///< all_to_all, one per rank
  std::shared_ptr<void> keep;                            ///< holds the memory until the operation is done
};

}  // namespace tessera::comm::shm
