#pragma once
/// \file
/// One operation of a group on raw memory, as executed by a Transport (transport.h).

#include <tessera/kernels/cpu/reduce.h>
#include <tessera/launch/watch/record.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::wire {

constexpr int any_source = -1;

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
  using Loop = void (*)(const void* const* inputs, int input_count, void* const* outputs, int output_count,
                        std::size_t bytes);
  launch::Entry entry;  ///< the record: compared between ranks, named in errors; entry.op selects the operation
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t part_bytes = 0;  ///< n
  int root = -1;               ///< rank in the group: the root, or a message's destination or source (recv: may be
                               ///< any_source)
  int tag = 0;
  kernels::Number number = kernels::Number::fp32;  ///< the element type of reductions
  kernels::Fold fold = kernels::Fold::sum;
  /// If set, used instead of kernels::reduce, for types and folds that it does not support; sizes are in bytes, and
  /// `number` is uint8.
  Loop loop = nullptr;
  /// all_reduce and reduce_scatter: the fold starts with the output, which is fp32 if the input is bf16 or fp16 (n
  /// counts the input's bytes).
  bool accumulates = false;
  std::vector<std::size_t> input_splits, output_splits;  ///< all_to_all, one per rank
  std::chrono::milliseconds timeout{0};                  ///< limit for a wait for a peer; 0: the group's
  std::shared_ptr<void> keep;                            ///< keeps the memory alive until the operation is done
};

}  // namespace tessera::wire
