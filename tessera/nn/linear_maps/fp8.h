#pragma once
/// \file
/// nn/linear_maps/: linear maps (nn/linear.h) other than plain products: deferred gradients, eight-bit products, frozen
/// weights in few bits, operands rounded in training. This header: rounding to eight bits, and the largest values that
/// determine scales (Micikevicius et al. 2022, "FP8 Formats for Deep Learning"; NVIDIA's Transformer Engine; OCP
/// Microscaling Formats 1.0). nn/linear_maps/fp8_linear.h multiplies.
///
/// e4m3 (float8_e4m3fn) reaches 448 with 3 mantissa bits, e5m2 57344 with 2.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace tessera::nn {

struct DeviceKernels;

/// The operands of a linear map's products: its input and weight, and, in backward, the gradient of its output.
enum class Fp8Operand { input, weight, gradient };

/// How operands are rounded.
struct Fp8Options {
  Fp8Format format = Fp8Format::hybrid;         ///< not none
  Fp8Recipe recipe = Fp8Recipe::delayed;        ///< selects the values that share a scale
  std::int64_t amax_history_len = 1;            ///< delayed: number of steps whose largest values are kept; >= 1
  Fp8Amax amax_compute = Fp8Amax::most_recent;  ///< delayed: selects the value of the history that is used
  std::int64_t margin = 0;                      ///< delayed, tensorwise: scales are divided by 2^this
};

/// The type that an operand is rounded to: e5m2 for gradients in hybrid, else e4m3.
at::ScalarType fp8_type(Fp8Format format, Fp8Operand operand);
/// The largest number of the type: 448 or 57344.
double fp8_most(at::ScalarType type);

/// A matrix in eight bits, which represents values * scale; each scale applies to one block.
struct Fp8Tensor {
  at::Tensor values;                   ///< [R, C], float8
  at::Tensor scale;                    ///< fp32: [1, 1] for the whole matrix, else [ceil(R / rows), ceil(C / columns)]
  std::int64_t rows = 0, columns = 0;  ///< block size of a scale; 0: the whole matrix
};

/// x [R, C] with one scale: amax is mapped to the largest number of the type times 2^-margin; results beyond that
/// largest number saturate. `amax`: fp32, one number; 0: the scale is 1. Rounded to nearest, ties to even.
Fp8Tensor to_fp8(const at::Tensor& x, at::ScalarType type, const at::Tensor& amax, std::int64_t margin = 0);
/// x [R, C] with a scale for each block of rows x columns: the smallest power of two with which the block's largest
/// value fits into the type.
Fp8Tensor to_fp8_blocks(const at::Tensor& x, at::ScalarType type, std::int64_t rows, std::int64_t columns);
/// values * scale, fp32 [R, C].
at::Tensor widened(const Fp8Tensor& x);
/// The transpose, contiguous.
Fp8Tensor transposed(const Fp8Tensor& x);

/// A rounded matrix and its transpose.
struct Fp8Ways {
  Fp8Tensor straight, turned;
};

/// The largest absolute value of x as one fp32 number.
at::Tensor largest_value(const at::Tensor& x);

/// The largest values of all linear maps of a model that compute in fp8. Forward and backward record them during a
/// step; at its end, when every process has the maximum over all processes, they enter the history, which determines
/// the next steps' scales (delayed). In the first step, which has no history, a scale uses the current largest value.
class Fp8State {
 public:
  Fp8State(const Fp8Options& options, std::int64_t maps, at::Device device = at::kCPU);

  const Fp8Options& options() const { return options_; }
  std::int64_t maps() const { return now_.size(0); }
  /// Whether end_step() is required: only delayed scales depend on other steps.
  bool keeps_history() const { return options_.recipe == Fp8Recipe::delayed; }

  /// Discards values recorded since the last step (trials, evaluations).
  void begin_step();
  /// Values recorded in the current step, fp32 [maps, 3]. Before end_step(), each process replaces them by the maximum
  /// over all processes.
  const at::Tensor& noted() const;
  /// Moves recorded values into the history; non-finite ones are replaced by the previous entry.
  void end_step();

  /// fp32 [steps, maps, 3], newest first; steps that have not run yet are zeros. As many steps as are kept.
  const at::Tensor& history() const { return history_; }
  /// Restores the history of a checkpoint; if the length differs, the newest entries are used. Throws Error for a
  /// different number of maps.
  void set_history(const at::Tensor& history);

 private:
  friend class Fp8Map;

  /// The most recently rounded input: maps with the same input (queries, keys and values; gate and up) share it.
  struct LastInput {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // storage of the matrix, which may have been freed
    const void* data;
    std::uint32_t version;
    std::vector<std::int64_t> sizes, strides;
    c10::Stream stream;  // stream on which the rounded values are computed
    bool noted;
    std::int64_t map;
    Fp8Ways ways;
  };

  void choose();
  static std::optional<LastInput> last_input(const at::Tensor& x, bool note);

  Fp8Options options_;
  at::Tensor now_, history_, chosen_;  // chosen_ [maps, 3]
  mutable std::mutex mutex_;           // guards the members below
  std::optional<LastInput> last_;
  using Maps = std::map<std::int64_t, std::int64_t>;
  Maps same_input_;               // in the current step: map -> the map whose largest value it shares
  mutable Maps sent_;             // the contents of from_ and to_
  mutable at::Tensor from_, to_;  // on the device
};

/// One linear map's part of the state. The last dimension of its operands is the one that the product sums over.
class Fp8Map {
 public:
  Fp8Map(std::shared_ptr<Fp8State> state, std::int64_t map) : state_(std::move(state)), map_(map) {}
  const Fp8Options& options() const { return state_->options(); }
  /// Whether a matrix has one scale, so that its transpose needs no separate rounding.
  bool one_scale() const;
  /// The rounded operand; with `note` its largest value is recorded for later steps.
  Fp8Tensor rounded(const at::Tensor& x, Fp8Operand operand, bool note) const;

  /// The kernels of x's device, if they round as rounded() would; otherwise null, and ATen's operators are used.
  const DeviceKernels* kernels(const at::Tensor& x) const;
  /// rounded() and its transpose in one pass of kernels(x); results not requested are undefined. x is recorded in
  /// either case.
  Fp8Ways rounded_ways(const DeviceKernels& kernels, const at::Tensor& x, Fp8Operand operand, bool note, bool straight,
                       bool turned) const;
  /// The same for an input; the untransposed result is always computed. If another map of the state has just rounded
  /// the same matrix, its values are returned: equal inputs have equal largest values and so equal scales.
  Fp8Ways rounded_input(const DeviceKernels& kernels, const at::Tensor& x, bool note, bool turned) const;

 private:
  std::shared_ptr<Fp8State> state_;
  std::int64_t map_;
};

/// While it exists, linear maps (nn/linear.h) of this thread compute in fp8 according to `map`; nullptr: as usual.
/// Their backward follows what forward used. Nests.
class Fp8Scope {
 public:
  /// `training`: largest values are recorded for later steps.
  Fp8Scope(const std::shared_ptr<const Fp8Map>& map, bool training);
  ~Fp8Scope();
  Fp8Scope(const Fp8Scope&) = delete;
  Fp8Scope& operator=(const Fp8Scope&) = delete;

  /// This thread's current scope, or nullptr.
  static const Fp8Scope* current();
  const std::shared_ptr<const Fp8Map>& map() const { return map_; }
  bool training() const { return training_; }

 private:
  std::shared_ptr<const Fp8Map> map_;
  bool training_;
  const Fp8Scope* outer_;
};

}  // namespace tessera::nn
