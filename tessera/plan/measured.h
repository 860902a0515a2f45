#pragma once
/// \file
/// Results of `tessera plan calibrate`: times in seconds of a step's operations by size, for one of several processes
/// that share the machine and run at the same time. Each value comes with its spread.

#include <tessera/base/value.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::plan {

/// Seconds by size. Logarithms are interpolated between two sizes. Below the first size, its time (the fixed cost)
/// applies; beyond the last size, its rate.
struct Curve {
  struct Point {
    double size = 0, seconds = 0;
    double spread = 0;  ///< half the interquartile range of all repetitions, divided by the median
  };
  std::vector<Point> points;  ///< ascending

  bool empty() const { return points.empty(); }
  /// Requires at least one point.
  double at(double size) const;
};

/// The timed operations: those of tessera/nn and tessera/optim, called as in training. `size` is FLOP for products (of
/// the forward) and for attention (4 x queries x visible keys x width), otherwise bytes that the forward reads and
/// writes.
enum class Work : unsigned char {
  product_fp32,
  product_fp32_backward,
  product_bf16,
  product_bf16_backward,
  attention_fp32,
  attention_fp32_backward,
  attention_bf16,
  attention_bf16_backward,
  norm,
  norm_backward,
  gate,  ///< activations with an exponential, and softmaxes
  gate_backward,
  update  ///< AdamW: parameter, gradient, two moments
};
inline constexpr std::size_t works = 13;
std::string_view name_of(Work work);

/// Speeds of one of `processes` processes that all run at the same time.
struct Speeds {
  int processes = 1, threads = 1;
  std::array<Curve, works> curves;
  /// Seconds of forward and backward of a whole model, divided by the sum of its operations' seconds
  /// (reference_step.h), in fp32 and in bf16; 1: not measured.
  double between_fp32 = 1, between_bf16 = 1;
  /// Collectives: "all_reduce" in groups of `ranks` ranks, with all groups active at once; size: bytes of the larger
  /// tensor.
  struct Exchange {
    std::string op;
    int ranks = 2;
    Curve curve;
  };
  std::vector<Exchange> exchanges;

  const Curve& operator[](Work work) const { return curves[static_cast<std::size_t>(work)]; }
  Curve& operator[](Work work) { return curves[static_cast<std::size_t>(work)]; }
  /// nullptr: not measured.
  const Curve* exchange(std::string_view op, int ranks) const;
};

/// The member "measured" of a hardware file: an array, by number of processes.
Value speeds_value(const std::vector<std::shared_ptr<const Speeds>>& all);
/// Throws InputError "file:line:column: ...": unknown words, sizes that do not ascend, invalid numbers.
std::vector<std::shared_ptr<const Speeds>> read_speeds(const Value& value);
/// The entry with the fewest processes that has at least `processes`, otherwise the one with the most; nullptr if
/// empty.
std::shared_ptr<const Speeds> speeds_for(const std::vector<std::shared_ptr<const Speeds>>& all, int processes);

/// The file that `tessera plan calibrate` writes and "this-machine" reads: hardware/HOST.json in the user's cache
/// folder. Throws InputError if there is no such folder.
std::string calibration_file();

}  // namespace tessera::plan
