#pragma once
/// \file
/// optim/: optimizers fused over flat shards, schedules (schedule.h), norms (norm.h), loss scaling (loss_scale.h),
/// optimizers by the names of --optim (by_name.h). This header: the interface for the trainer, the sharding engine and
/// the checkpoint.
///
/// Pieces. A slot may be a piece of a parameter. AdamW, Adam, SGD, Adagrad, RMSprop and Lion, with every option, give
/// each element bitwise identical results wherever the parameter is cut. Adafactor, LAMB and LARS need sums over whole
/// parameters: these are formed exactly (exact_sum.h, kernels/cpu/binned_sums.h) before rounding, so for float32 on the
/// CPU their bits do not depend on the cuts either; elsewhere results agree up to rounding.

#include <ATen/core/Tensor.h>

#include <tessera/optim/norm.h>
#include <tessera/optim/schedule.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::optim {

/// A parameter being optimized. Its gradient is parameter.grad() at the time of step(); if that is undefined, the
/// parameter is skipped.
struct Slot {
  std::string name;                ///< suffix of its states' names: "exp_avg.NAME"
  at::Tensor parameter;            ///< fp32 or fp64, contiguous; all slots of one dtype and device
  double weight_decay = 0;         ///< applied as described for each factory
  double learning_rate_scale = 1;  ///< factor of the rate of step()
  /// Sharded: `parameter` [n] is elements [begin, begin + n) of a flattened parameter of this shape; `begin` is a
  /// multiple of 64 unless n is 0. Empty and 0: `parameter` is whole.
  std::vector<std::int64_t> shape = {};
  std::int64_t begin = 0;
  bool orthogonal = false;   ///< Muon: a matrix whose updates are orthogonalized; other slots follow AdamW
  bool wide_states = false;  ///< CommonOptions::eight_bit_state does not apply to this slot (embeddings)
  double epsilon_scale = 1;  ///< AdamW and Adam: factor of epsilon
};

/// Parameters with fewer elements always have 32-bit states (name and value from bitsandbytes).
inline constexpr std::int64_t min_8bit_size = 4096;

/// Allocates memory for optimizer state (zero-filled) outside ordinary memory. Empty: ordinary memory. For host memory
/// with parameters on a device: make_optimizer() (by_name.h) or make_offloaded() (offloaded.h).
using StateAllocator = std::function<at::Tensor(at::IntArrayRef sizes, at::TensorOptions options)>;
/// Sums `values` in place over the ranks that hold the other parts of the same parameters; every rank calls it at the
/// same points with the same number of values. Empty: this rank holds whole parameters.
using SumOverShards = std::function<void(std::vector<double>& values)>;

/// A state in a form other than float32, with functions for a checkpoint to save and restore it. The functions refer to
/// the optimizer, which must outlive them.
struct EncodedState {
  std::string name;                               ///< "exp_avg.NAME"
  std::vector<std::int64_t> shape;                ///< as in Optimizer::state()
  std::int64_t bytes;                             ///< in its stored form
  std::function<at::Tensor()> decode;             ///< returns a new float32 tensor of the state's shape
  std::function<void(const at::Tensor&)> encode;  ///< stores values of this kind; encode(decode()) does not change any
                                                  ///< bit
};

/// An optimizer over flat buffers, with one fused pass.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Makes one update. Every gradient is multiplied by `gradient_scale` on the fly, so clipping does not need an extra
  /// pass. Collective if SumOverShards is set for Adafactor, LAMB or LARS. Increments the version counter of every
  /// updated parameter.
  virtual void step(double learning_rate, double gradient_scale = 1) = 0;
  /// Whether a step can read its factor from the device, so that the host need not wait for the gradients' norm. True
  /// for AdamW and Adam with float32 parameters on CUDA.
  virtual bool takes_step_scalars() const { return false; }
  /// step() with gradients times the factor in `scalars` (optim::step_scalars()); if they request a skip, only steps()
  /// changes. Throws Error unless takes_step_scalars().
  virtual void step_by(const at::Tensor& scalars, double learning_rate);
  /// Sets slot i's learning_rate_scale to scales[i] from the next step; one per slot.
  virtual void set_learning_rate_scales(const std::vector<double>& scales) = 0;
  /// State tensors by name ("exp_avg.h.0.attn.c_attn.weight", ...), for checkpoints; they alias the live state. For a
  /// piece of a parameter: the same piece [n] of the state.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const = 0;
  /// The states stored in eight bits, which state() does not include; laid out like the slots.
  virtual std::vector<EncodedState> encoded_states() const { return {}; }
  /// True for a state tensor that every rank with the slot has whole and equal (Adafactor's row and column averages);
  /// other states are laid out like the slot.
  virtual bool is_replicated(const std::string& state_name) const { return false; }
  /// Number of updates so far: one count for all slots, including skipped ones (torch counts per parameter).
  virtual std::int64_t steps() const = 0;
  virtual void set_steps(std::int64_t steps) = 0;  ///< for a resumed run
  /// Sets the decays of the averages from the next step (one_cycle moves them with the learning rate). False: this
  /// optimizer does not have two betas (only AdamW, Adam, Lion and LAMB do), and nothing changes. Throws InputError
  /// outside [0, 1).
  virtual bool set_betas(const Betas&) { return false; }
};

/// Throws InputError unless both are in [0, 1). `name`: the optimizer's name, for the message.
void check_betas(const char* name, double beta1, double beta2);

/// Options that all optimizers have in common.
struct CommonOptions {
  /// AdamW, Adam, SGD, Lion: stores the averages in bfloat16, which halves their memory. Requires float32 parameters.
  bool bf16_state = false;
  /// How bf16 states round: up or down at random, with the exact value as the mean, so that small changes (1 - beta2 of
  /// 0.001 is less than half a unit of bfloat16) are not lost. The random bits depend on seed, step, parameter name and
  /// element index, not on ranks or threads. false: to nearest, ties to even.
  bool stochastic_rounding = true;
  std::uint64_t seed = 0;  ///< seed of the random bits
  /// AdamW, Adam, Lion on the CPU: stores averages in 8 bits, in blocks of 64 elements with one scale each
  /// (kernels/cpu/eight_bit.h): slightly over a quarter of the memory of float32. Slots with fewer than min_8bit_size
  /// elements (in the whole parameter) and those with Slot::wide_states keep float32. Requires float32 parameters.
  bool eight_bit_state = false;
  StateAllocator allocate = {};        ///< allocator for states; empty: ordinary memory
  SumOverShards sum_over_shards = {};  ///< empty: parameters are whole on this rank
};

/// All factories throw InputError for options out of range (with their names and the rule), for a parameter that is not
/// contiguous float32 or float64, or differs from the others in dtype or device, and for a piece outside its shape.

/// AdamW (Loshchilov and Hutter 2019).
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< decays of the two averages; added to the square root
  bool bias_correction = true;  ///< false: the moments are used uncorrected from the first step (BERT's Adam)
};
/// AdamW, Loshchilov & Hutter 2019, following torch.optim.AdamW (torch/optim/adam.py, _single_tensor_adam). States
/// exp_avg, exp_avg_sq.
std::unique_ptr<Optimizer> make_adamw(std::vector<Slot> slots, const AdamWOptions& options,
                                      const CommonOptions& common = {});
/// Adam, Kingma & Ba 2015, following torch.optim.Adam: decay is added to the gradient (L2). States exp_avg, exp_avg_sq.
std::unique_ptr<Optimizer> make_adam(std::vector<Slot> slots, const AdamWOptions& options,
                                     const CommonOptions& common = {});

/// Stochastic gradient descent, optionally with momentum.
struct SgdOptions {
  double momentum = 0;    ///< 0: no state
  bool nesterov = false;  ///< requires momentum
};
/// SGD following torch.optim.SGD (decay added to the gradient, dampening 0). State momentum_buffer with momentum.
std::unique_ptr<Optimizer> make_sgd(std::vector<Slot> slots, const SgdOptions& options,
                                    const CommonOptions& common = {});

/// Adagrad (Duchi et al. 2011).
struct AdagradOptions {
  /// Step n, from 0, uses the rate divided by 1 + n learning_rate_decay; sums start at initial_accumulator_value.
  double epsilon = 1e-10, learning_rate_decay = 0, initial_accumulator_value = 0;
};
/// Adagrad, Duchi et al. 2011, following torch.optim.Adagrad. State sum.
std::unique_ptr<Optimizer> make_adagrad(std::vector<Slot> slots, const AdagradOptions& options,
                                        const CommonOptions& common = {});

/// RMSprop (Tieleman & Hinton 2012).
struct RmspropOptions {
  double alpha = 0.99, epsilon = 1e-8;  ///< decay of the averages; added to the square root
  double momentum = 0;                  ///< 0: no momentum_buffer
  bool centered = false;                ///< divides gradients by their deviation from their own average
};
/// RMSprop, Tieleman & Hinton 2012 (lecture 6.5), following torch.optim.RMSprop (decay added to the gradient). States
/// square_avg; grad_avg if centered; momentum_buffer with momentum.
std::unique_ptr<Optimizer> make_rmsprop(std::vector<Slot> slots, const RmspropOptions& options,
                                        const CommonOptions& common = {});

/// Lion (Chen et al. 2023).
struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99;  ///< weight of the average in the update; decay of the average
};
/// Lion, Chen et al. 2023, algorithm 2. State exp_avg.
std::unique_ptr<Optimizer> make_lion(std::vector<Slot> slots, const LionOptions& options,
                                     const CommonOptions& common = {});

/// Names and meanings follow transformers.optimization.Adafactor; the defaults follow transformers.Trainer (no scaling
/// by the parameter, learning rate from outside).
struct AdafactorOptions {
  double epsilon1 = 1e-30, epsilon2 = 1e-3;  ///< eps[0], eps[1]
  double clip_threshold = 1.0;               ///< maximum root mean square of an update
  double decay_rate = -0.8;                  ///< the decay of second moments at step n (from 1) is 1 - n^decay_rate;
                                             ///< below 0
  double beta1 = 0;                          ///< 0: no first moment (None in transformers)
  bool scale_parameter = false;              ///< multiplies rates by the parameter's RMS, at least epsilon2
  bool relative_step = false;  ///< ignores the learning rate given to step(); learning_rate_scale still applies
  bool warmup_init = false;    ///< with relative_step: the rate starts at 1e-6 and rises by 1e-6 per step
};
/// Adafactor, Shazeer & Stern 2018. Second moments of parameters with two dimensions or more are factored over the last
/// two of their true shape: exp_avg_sq_row, exp_avg_sq_col (replicated); otherwise exp_avg_sq; exp_avg if beta1 > 0.
/// Calls SumOverShards twice a step: for the sums of squares, and for the size of the update, which depends on them.
std::unique_ptr<Optimizer> make_adafactor(std::vector<Slot> slots, const AdafactorOptions& options,
                                          const CommonOptions& common = {});

/// LAMB (You et al. 2020).
struct LambOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;  ///< decays of the two averages; added to the square root
  bool bias_correction = true;                        ///< false: the averages are used uncorrected
  double min_trust_ratio = 0;                         ///< lower bound of the trust ratio, unless a norm is 0
  double max_trust_ratio = 0;                         ///< upper bound of the trust ratio; 0: none
  bool adapt_undecayed = false;  ///< also scales slots without weight decay by their trust ratio (NVLAMB)
};
/// LAMB, You et al. 2020, algorithm 2: Adam's direction (decay added to it), scaled per parameter by ||p|| / ||update||
/// (1 if one of them is 0). States exp_avg, exp_avg_sq. One SumOverShards per step.
std::unique_ptr<Optimizer> make_lamb(std::vector<Slot> slots, const LambOptions& options,
                                     const CommonOptions& common = {});

/// LARS (You et al. 2017).
struct LarsOptions {
  double momentum = 0.9;            ///< 0: no state
  bool nesterov = false;            ///< requires momentum
  double trust_coefficient = 1e-3;  ///< factor of ||p||, see make_lars()
  double epsilon = 1e-8;            ///< added to the denominator in make_lars()
  bool adapt_undecayed = false;     ///< also scales slots without weight decay
};
/// LARS, You, Gitman & Ginsburg 2017, as SGD on scaled gradients (like NVIDIA's LARC without clipping): (g + decay * p)
/// * trust_coefficient * ||p|| / (||g|| + decay * ||p|| + epsilon), factor 1 if a norm is 0; then torch.optim.SGD
/// without decay. State momentum_buffer with momentum. One SumOverShards per step.
std::unique_ptr<Optimizer> make_lars(std::vector<Slot> slots, const LarsOptions& options,
                                     const CommonOptions& common = {});

/// The scale of Muon's orthogonal updates, computed from the rows and columns of a matrix as stored (out x in of a
/// Linear).
enum class MuonScale : unsigned char {
  shape_scaling,  ///< sqrt(max(1, rows / columns)): Jordan 2024; torch.optim.Muon's "original"
  spectral,       ///< sqrt(max(rows, columns)): Liu et al. 2025; times 0.2 torch.optim.Muon's "match_rms_adamw"
  unit_rms_norm   ///< sqrt(rows / columns): Bernstein 2025
};
/// The coefficients (a, b, c) of the iteration x <- a x + (b x x' + c (x x')^2) x.
enum class MuonCoefficients : unsigned char {
  simple,  ///< 3.4445, -4.7750, 2.0315 in every step: Jordan 2024, torch.optim.Muon
  quintic  ///< five triples of modded-nanogpt, applied cyclically: Megatron-LM
};
/// Muon (Jordan et al. 2024).
struct MuonOptions {
  double momentum = 0.95;                                    ///< decay of the average of gradients
  bool nesterov = true;                                      ///< adds the gradient itself once more
  std::int64_t steps = 5;                                    ///< number of iterations
  MuonCoefficients coefficients = MuonCoefficients::simple;  ///< coefficients of the iteration's steps
  MuonScale scale = MuonScale::shape_scaling;                ///< scale of the updates
  double extra_scale = 1;                                    ///< additional factor
  double epsilon = 1e-7;                                     ///< minimum norm by which a matrix is divided
  AdamWOptions others = {};                                  ///< options for slots that are not orthogonal
};
/// Muon, Jordan et al. 2024 (kellerjordan.github.io/posts/muon), following torch.optim.Muon: the average m of
/// gradients, or with nesterov g + momentum (m - g), is moved close to the nearest orthogonal matrix by the
/// Newton-Schulz iteration, in the precision of the parameters, multiplied by rate and scale, and subtracted; decay is
/// decoupled. Slots that are not `orthogonal` follow make_adamw(). States momentum_buffer, or exp_avg and exp_avg_sq.
/// Also throws InputError for an orthogonal slot without two dimensions. One SumOverShards per matrix and step gathers
/// its pieces; each rank iterates on the whole matrix and takes its own piece, so results do not depend on the cuts.
std::unique_ptr<Optimizer> make_muon(std::vector<Slot> slots, const MuonOptions& options,
                                     const CommonOptions& common = {});

}  // namespace tessera::optim
