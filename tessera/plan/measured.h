#pragma once
/// \file
/// What `tessera plan calibrate` has measured of a machine: seconds of the operations that a step is made of, by size,
/// for one of so many processes that share the machine and all work at once. Each figure has its spread.

#include <tessera/base/value.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::plan {

/// Seconds by size. Between two sizes logarithms are interpolated; below the first one lies its time (what it costs to
/// begin), beyond the last one its rate.
struct Curve {
  struct Point {
    double size = 0, seconds = 0;
    double spread = 0;  ///< half the distance of the quartiles of all repetitions, over the median
  };
  std::vector<Point> points;  ///< ascending

  bool empty() const { return points.empty(); }
  /// At least one point.
  double at(double size) const;
};

/// What is timed: the operations of tessera/nn and tessera/optim as training calls them. `size` is FLOP of the forward
/// product, of attention (4 x queries x keys seen x width), else bytes that the forward reads and writes.
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
  gate,  ///< activations with an exponential, softmaxes
  gate_backward,
  update  ///< AdamW: parameter, gradient, two moments
};
inline constexpr std::size_t works = 13;
std::string_view name_of(Work work);

/// What one process among `processes` reaches when all work at once.
struct Speeds {
  int processes = 1, threads = 1;
  std::array<Curve, works> curves;
  /// Seconds of forward and backward of a whole model over the sum of its operations' (reference_step.h), in fp32 and
  /// in bf16; 1: not measured.
  double between_fp32 = 1, between_bf16 = 1;
  /// Collectives: "all_reduce" of groups of so many ranks, all groups at once; size: bytes of the larger tensor.
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

/// The member "measured" of a hardware file: an array by number of processes.
Value speeds_value(const std::vector<std::shared_ptr<const Speeds>>& all);
/// Throws InputError "file:line:column: ...": unknown words, sizes that do not ascend, numbers that are none.
std::vector<std::shared_ptr<const Speeds>> read_speeds(const Value& value);
/// Those of the fewest processes that are as many as asked, else of the most; nullptr when there are none.
std::shared_ptr<const Speeds> speeds_for(const std::vector<std::shared_ptr<const Speeds>>& all, int processes);

/// Where `tessera plan calibrate` writes and "this machine" is read from: hardware/HOST.json in the user's cache
/// folder. Throws InputError when there is no such folder.
std::string calibration_file();

}  // namespace tessera::plan
