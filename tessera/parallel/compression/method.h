#pragma once
/// \file
/// Shared parts of the gradient compression methods: checks, byte-counting collectives, exactly reduced ranges.
///
/// Elements outside of the segments (padding, counters at a buffer's end) are always reduced exactly. One rank sends
/// nothing, so nothing is compressed there. Non-finite gradients give non-finite results and leave the kept state
/// (error feedback) unchanged.

#include <tessera/parallel/compression/compression.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// Elements [begin, begin + numel).
struct FlatRange {
  std::int64_t begin = 0, numel = 0;
};

/// The ranges of [0, n) that are not in `taken` (any order, disjoint); ascending.
std::vector<FlatRange> complement(std::span<const FlatRange> taken, std::int64_t n);
/// A copy of the ranges, one after another.
at::Tensor packed(const at::Tensor& flat, std::span<const FlatRange> ranges);
std::int64_t numel_of(std::span<const FlatRange> ranges);

class CompressionMethod : public Compression {
 public:
  void step_done() override;
  std::pair<std::int64_t, std::int64_t> bytes() const override { return {plain_bytes_, sent_bytes_}; }

 protected:
  /// Checks the request and counts the bytes that its plain reduction would send. Throws Error.
  void begin(const ReductionRequest& request);
  /// The plain reduction, after begin().
  comm::Work plain(const ReductionRequest& request);
  // Collectives whose bytes are counted.
  comm::Work all_reduce(const comm::Group& group, const at::Tensor& tensor);  ///< sum
  comm::Work all_gather(const comm::Group& group, const at::Tensor& output, const at::Tensor& input);
  comm::Work all_to_all(const comm::Group& group, const at::Tensor& output, const at::Tensor& input);
  comm::Work accumulate_scatter(const comm::Group& group, const at::Tensor& accumulator, const at::Tensor& input);

  /// Completed steps: the calls of step_done(); if it is never called, the earlier reductions of the same key.
  std::int64_t steps() const;
  /// Adds the number of steps after the last reduction, and whether step_done() is called, to state(); restore_steps()
  /// reads them back.
  void add_steps(std::vector<std::pair<std::string, at::Tensor>>& state) const;
  void restore_steps(const std::vector<std::pair<std::string, at::Tensor>>& state);

 private:
  std::int64_t plain_bytes_ = 0, sent_bytes_ = 0;
  std::int64_t steps_ = 0, most_reductions_ = 0;
  bool counts_step_done_ = false;
  std::map<std::string, std::int64_t, std::less<>> reductions_;  ///< per key, until step_done() is called
};

/// This rank's part of flat as output of the request: [begin, begin + numel) with numel = output.numel().
FlatRange output_range(const ReductionRequest& request);
/// Writes `values` (elements [begin, begin + values.numel()) of flat) where they overlap the request's output.
void write_output(const ReductionRequest& request, std::int64_t begin, const at::Tensor& values);
/// Writes packed(result, ranges) where they overlap the request's output.
void write_output(const ReductionRequest& request, std::span<const FlatRange> ranges, const at::Tensor& packed_values);
/// R for a mean, 1 for a sum.
double divisor(const ReductionRequest& request);
/// fp64 stays; every other type is converted to fp32. Copies only if the type differs.
at::Tensor in_compute_dtype(const at::Tensor& flat);
bool all_finite(const at::Tensor& tensor);

/// Tensors that a method keeps from step to step, by key. Keys not requested in the last 8 steps are dropped (the
/// buckets have changed).
class KeptTensors {
 public:
  explicit KeptTensors(std::string suffix) : suffix_(std::move(suffix)) {}
  /// Undefined on first use.
  at::Tensor& of(std::string_view key, std::int64_t step);
  /// KEY + suffix -> tensor.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  /// Reads the entries whose names have this suffix.
  void restore(const std::vector<std::pair<std::string, at::Tensor>>& state, std::int64_t step);

 private:
  struct Kept {
    at::Tensor tensor;
    std::int64_t used = 0;
  };
  std::string suffix_;
  std::map<std::string, Kept, std::less<>> kept_;
};

/// The part of a key's gradients that compression has dropped so far, to be added to its next gradient (Seide et al.
/// 2014): [numel], zeros at first and after a change of size (a different number of ranks). A restored error is moved
/// to the device of `options`. Stored as "KEY/error".
at::Tensor& error_of(KeptTensors& errors, std::string_view key, std::int64_t step, std::int64_t numel,
                     const at::TensorOptions& options);

}  // namespace tessera::parallel
