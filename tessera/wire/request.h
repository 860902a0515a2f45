#pragma once
/// \file
/// A caller's request for an operation; c/tessera_c.h describes the sizes.

#include <tessera/launch/watch/record.h>
#include <tessera/wire/arithmetic.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::wire {

struct Request {
  launch::Op op = launch::Op::barrier;
  Dtype dtype = Dtype::uint8;
  Reduction reduction = Reduction::sum;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;
  /// Whether parts differ in size. For all_gather and reduce_scatter, output_counts then has every rank's part; for
  /// all_to_all, both vectors have one count per rank.
  bool uneven = false;
  std::vector<std::int64_t> input_counts, output_counts;
  int peer = -1;  ///< root, destination or source
  int tag = 0;
  std::chrono::milliseconds timeout{0};  ///< 0: the group's
  double prescale = 1, postscale = 1;
  std::string label;
};

bool is_message(launch::Op op);
bool is_reduction(launch::Op op);

/// Throws Failure (invalid) naming the invalid argument, for a rank of a group of `size` ranks.
void check(const Request& request, int rank, int size);

/// Elements of the caller's larger buffer: the payload in the record.
std::int64_t payload_elements(const Request& request, int size);

/// The request's record, without sequence number, id and times.
launch::Entry entry_of(const Request& request, const std::string& group, int size);

}  // namespace tessera::wire
