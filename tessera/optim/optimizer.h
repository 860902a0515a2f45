#pragma once
/// \file
/// optim/: optimizers fused over flat buffers, schedules (schedule.h), norms. This header: what the trainer and the
/// checkpoint see.

#include <ATen/core/Tensor.h>

#include <tessera/optim/schedule.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::optim {

/// A parameter under optimisation. Its gradient is parameter.grad() at the time of step(); undefined: the parameter is
/// skipped.
struct Slot {
  std::string name;
  at::Tensor parameter;  ///< fp32 or fp64, contiguous; all slots of one dtype and device
  double weight_decay = 0;
  double learning_rate_scale = 1;
  /// Sharded: `parameter` [n] is elements [begin, begin + n) of a flattened parameter of this shape, n may be 0. Empty and 0: `parameter`
  /// is the whole one.
  std::vector<std::int64_t> shape = {};
  std::int64_t begin = 0;
};

/// Makes memory for optimizer state (zero-filled), somewhere else than in ordinary memory. Empty: ordinary memory.
using StateAllocator = std::function<at::Tensor(at::IntArrayRef sizes, at::TensorOptions options)>;
/// Adds `values` up over the ranks that hold the other parts of the same parameters, in place; every rank calls it at the same
/// points. Empty: this rank holds whole parameters.
using SumOverShards = std::function<void(std::vector<double>& values)>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One update. Every gradient is multiplied by `gradient_scale` on the fly (clipping costs no extra pass).
  virtual void step(double learning_rate, double gradient_scale = 1) = 0;
  /// State tensors by name ("exp_avg.h.0.attn.c_attn.weight", ...), for checkpoints; they alias the live state.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const = 0;
  /// Updates so far: one count for all slots, also for those that were skipped (torch counts per parameter).
  virtual std::int64_t steps() const = 0;
  virtual void set_steps(std::int64_t steps) = 0;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};
/// AdamW, Loshchilov & Hutter 2019, as torch.optim.AdamW computes it (torch/optim/adamw.py, _single_tensor_adam).
/// Moments fp32 in one flat buffer.
std::unique_ptr<Optimizer> make_adamw(std::vector<Slot> slots, const AdamWOptions& options);
struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
};
/// SGD as torch.optim.SGD (decay added to the gradient, dampening 0).
std::unique_ptr<Optimizer> make_sgd(std::vector<Slot> slots, const SgdOptions& options);

/// L2 norm over all gradients: fp64 partial sums over fixed blocks of each parameter, added in a fixed order (DESIGN
/// section 13).
double gradient_norm(const std::vector<at::Tensor>& gradients);
/// min(1, max_norm / (norm + 1e-6)); 1 when max_norm <= 0.
double clip_coefficient(double norm, double max_norm);

}  // namespace tessera::optim
