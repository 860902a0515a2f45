#pragma once
/// \file
/// optim/: optimizers fused over flat shards, schedules (schedule.h), norms (norm.h), loss scaling (loss_scale.h),
/// optimizers by the names of --optim (by_name.h). This header: what the trainer, the sharding engine and the
/// checkpoint see.
///
/// Pieces. A slot may be a piece of a parameter. AdamW, Adam, SGD, Adagrad, RMSprop and Lion, with every option, give
/// each element the same bits wherever the parameter is cut. Adafactor, LAMB and LARS need sums over whole parameters:
/// they are formed exactly (exact_sum.h, kernels/cpu/binned_sums.h) before they are rounded, so for float32 on the CPU
/// their bits do not depend on the cuts either; elsewhere they agree to rounding.

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

/// A parameter under optimisation. Its gradient is parameter.grad() at the time of step(); undefined: the parameter is
/// skipped.
struct Slot {
  std::string name;                ///< what its states are called by: "exp_avg.NAME"
  at::Tensor parameter;            ///< fp32 or fp64, contiguous; all slots of one dtype and device
  double weight_decay = 0;         ///< what it is added to: see the factories
  double learning_rate_scale = 1;  ///< the rate of step() times this
  /// Sharded: `parameter` [n] is elements [begin, begin + n) of a flattened parameter of this shape; n may be 0, else
  /// `begin` is a multiple of 64. Empty and 0: `parameter` is the whole one.
  std::vector<std::int64_t> shape = {};
  std::int64_t begin = 0;
  bool orthogonal = false;   ///< Muon: a matrix whose updates are made orthogonal; others follow AdamW
  bool wide_states = false;  ///< CommonOptions::eight_bit_state does not concern this slot (embeddings)
  double epsilon_scale = 1;  ///< AdamW and Adam: epsilon times this
};

/// Parameters of fewer elements have states of 32 bits in any case (the name and number of bitsandbytes).
inline constexpr std::int64_t min_8bit_size = 4096;

/// Makes memory for optimizer state (zero-filled), somewhere else than in ordinary memory. Empty: ordinary memory. Host
/// memory for parameters on a device: make_optimizer() (by_name.h) or make_offloaded() (offloaded.h).
using StateAllocator = std::function<at::Tensor(at::IntArrayRef sizes, at::TensorOptions options)>;
/// Adds `values` up over the ranks that hold the other parts of the same parameters, in place; every rank calls it at
/// the same points with as many values. Empty: this rank holds whole parameters.
using SumOverShards = std::function<void(std::vector<double>& values)>;

/// A state that is kept in another form than float32: what a checkpoint needs to save and restore it. The functions
/// refer to the optimizer, which must outlive them.
struct EncodedState {
  std::string name;                               ///< "exp_avg.NAME"
  std::vector<std::int64_t> shape;                ///< as Optimizer::state() would have it
  std::int64_t bytes;                             ///< that it takes as it is kept
  std::function<at::Tensor()> decode;             ///< a new tensor: float32, of that shape
  std::function<void(const at::Tensor&)> encode;  ///< takes such values; encode(decode()) changes no bit
};

/// An optimizer over flat buffers, one fused pass each.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One update. Every gradient is multiplied by `gradient_scale` on the fly (clipping costs no extra pass). Collective
  /// where SumOverShards is given to Adafactor, LAMB or LARS. Every updated parameter's version counter grows.
  virtual void step(double learning_rate, double gradient_scale = 1) = 0;
  /// Whether a step can take its factor from the device, so that nobody waits for the gradients' norm: AdamW and
  /// Adam of float32 parameters on CUDA.
  virtual bool takes_step_scalars() const { return false; }
  /// step() with gradients times the factor of `scalars` (optim::step_scalars()); where those say skip, nothing changes
  /// but steps(). Throws Error unless takes_step_scalars().
  virtual void step_by(const at::Tensor& scalars, double learning_rate);
  /// From the next step on slot i's learning_rate_scale is scales[i]; one for each slot.
  virtual void set_learning_rate_scales(const std::vector<double>& scales) = 0;
  /// State tensors by name ("exp_avg.h.0.attn.c_attn.weight", ...), for checkpoints; they alias the live state. Of a
  /// piece of a parameter: the same piece [n] of the state.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const = 0;
  /// The states that are kept in eight bits, which are not among those of state(); laid out as the slots are.
  virtual std::vector<EncodedState> encoded_states() const { return {}; }
  /// True for the name of a state tensor which is whole, and the same, on every rank that has the slot (Adafactor's row
  /// and column averages); others are laid out as the slot is.
  virtual bool is_replicated(const std::string& state_name) const { return false; }
  /// Updates so far: one count for all slots, also for those that were skipped (torch counts per parameter).
  virtual std::int64_t steps() const = 0;
  virtual void set_steps(std::int64_t steps) = 0;  ///< for a run that is resumed
  /// From the next step on, the averages decay so (one_cycle moves them with the learning rate). False: this optimizer
  /// has no two betas (all but AdamW, Adam, Lion and LAMB), and nothing changes. Throws InputError outside [0, 1).
  virtual bool set_betas(const Betas&) { return false; }
};

/// Throws InputError unless both lie in [0, 1). `name`: of the optimizer.
void check_betas(const char* name, double beta1, double beta2);

/// What every optimizer may be told besides its own numbers.
struct CommonOptions {
  /// AdamW, Adam, SGD, Lion: the averages are kept in bfloat16; half of their memory. The parameters are float32 then.
  bool bf16_state = false;
  /// How bf16 states round: up or down at random, with the exact value as the mean, so that small changes (1 - beta2 of
  /// 0.001 is less than half a unit of bfloat16) are not lost. The random bits depend on seed, step, name of the
  /// parameter and index of the element in it, not on ranks or threads. false: to nearest, ties to even.
  bool stochastic_rounding = true;
  std::uint64_t seed = 0;  ///< where the random bits come from
  /// AdamW, Adam, Lion on the CPU: averages are kept in 8 bits, in blocks of 64 elements with a scale each
  /// (kernels/cpu/eight_bit.h): a good quarter of the memory of float32. Slots of less than min_8bit_size elements (in
  /// the whole parameter) and those of Slot::wide_states keep float32. The parameters are float32 then.
  bool eight_bit_state = false;
  StateAllocator allocate = {};        ///< for states; empty: ordinary memory
  SumOverShards sum_over_shards = {};  ///< empty: parameters are whole here
};

/// All factories throw InputError for numbers out of range (naming them and the rule), for a parameter that is not
/// contiguous float32 or float64, or not of one dtype and device with the others, and for a piece outside its shape.

/// AdamW (Loshchilov and Hutter 2019).
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< decays of the two averages; added to the square root
  bool bias_correction = true;  ///< false: the moments count as they are from the first step (BERT's Adam)
};
/// AdamW, Loshchilov & Hutter 2019, as torch.optim.AdamW computes it (torch/optim/adam.py, _single_tensor_adam).
/// States exp_avg, exp_avg_sq.
std::unique_ptr<Optimizer> make_adamw(std::vector<Slot> slots, const AdamWOptions& options,
                                      const CommonOptions& common = {});
/// Adam, Kingma & Ba 2015, as torch.optim.Adam: decay is added to the gradient (L2). States exp_avg, exp_avg_sq.
std::unique_ptr<Optimizer> make_adam(std::vector<Slot> slots, const AdamWOptions& options,
                                     const CommonOptions& common = {});

/// Stochastic gradient descent, with momentum if it is wanted.
struct SgdOptions {
  double momentum = 0;    ///< 0: there is no state
  bool nesterov = false;  ///< needs a momentum
};
/// SGD as torch.optim.SGD (decay added to the gradient, dampening 0). State momentum_buffer, if there is momentum.
std::unique_ptr<Optimizer> make_sgd(std::vector<Slot> slots, const SgdOptions& options,
                                    const CommonOptions& common = {});

/// Adagrad (Duchi et al. 2011).
struct AdagradOptions {
  /// Step n, from 0, has the rate over 1 + n learning_rate_decay; sums begin with initial_accumulator_value.
  double epsilon = 1e-10, learning_rate_decay = 0, initial_accumulator_value = 0;
};
/// Adagrad, Duchi et al. 2011, as torch.optim.Adagrad. State sum.
std::unique_ptr<Optimizer> make_adagrad(std::vector<Slot> slots, const AdagradOptions& options,
                                        const CommonOptions& common = {});

/// RMSprop (Tieleman & Hinton 2012).
struct RmspropOptions {
  double alpha = 0.99, epsilon = 1e-8;  ///< decay of the averages; added to the square root
  double momentum = 0;                  ///< 0: there is no momentum_buffer
  bool centered = false;                ///< gradients are divided by their deviation from their own average
};
/// RMSprop, Tieleman & Hinton 2012 (lecture 6.5), as torch.optim.RMSprop (decay added to the gradient). States
/// square_avg; grad_avg, if centered; momentum_buffer, if there is momentum.
std::unique_ptr<Optimizer> make_rmsprop(std::vector<Slot> slots, const RmspropOptions& options,
                                        const CommonOptions& common = {});

/// Lion (Chen et al. 2023).
struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99;  ///< weight of the average in the update; decay of the average
};
/// Lion, Chen et al. 2023, algorithm 2. State exp_avg.
std::unique_ptr<Optimizer> make_lion(std::vector<Slot> slots, const LionOptions& options,
                                     const CommonOptions& common = {});

/// Names and meaning as transformers.optimization.Adafactor; the defaults are those of transformers.Trainer (no scaling
/// by the parameter, learning rate from outside).
struct AdafactorOptions {
  double epsilon1 = 1e-30, epsilon2 = 1e-3;  ///< eps[0], eps[1]
  double clip_threshold = 1.0;               ///< largest root mean square of an update
  double decay_rate = -0.8;                  ///< decay of second moments at step n, from 1: 1 - n^this; below 0
  double beta1 = 0;                          ///< 0: no first moment (None there)
  bool scale_parameter = false;              ///< rates are times the parameter's root mean square, at least epsilon2
  bool relative_step = false;  ///< the learning rate given to step() is ignored; learning_rate_scale counts
  bool warmup_init = false;    ///< with relative_step: the rate begins at 1e-6 and rises by as much a step
};
/// Adafactor, Shazeer & Stern 2018. Second moments of parameters with two dimensions or more are factored over the last
/// two of their true shape: exp_avg_sq_row, exp_avg_sq_col (replicated); of others exp_avg_sq; exp_avg if beta1 > 0.
/// Calls SumOverShards twice a step: for the sums of squares, and for the size of the update, which depends on them.
std::unique_ptr<Optimizer> make_adafactor(std::vector<Slot> slots, const AdafactorOptions& options,
                                          const CommonOptions& common = {});

/// LAMB (You et al. 2020).
struct LambOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;  ///< decays of the two averages; added to the square root
  bool bias_correction = true;                        ///< false: the averages count as they are
  double min_trust_ratio = 0;                         ///< the trust ratio is at least this, where no norm is 0
  double max_trust_ratio = 0;                         ///< the trust ratio is at most this; 0: no bound
  bool adapt_undecayed = false;  ///< also slots without weight decay are scaled by their trust ratio (NVLAMB)
};
/// LAMB, You et al. 2020, algorithm 2: Adam's direction (decay added to it), scaled per parameter by ||p|| / ||update||
/// (1 where one of them is 0). States exp_avg, exp_avg_sq. One SumOverShards a step.
std::unique_ptr<Optimizer> make_lamb(std::vector<Slot> slots, const LambOptions& options,
                                     const CommonOptions& common = {});

/// LARS (You et al. 2017).
struct LarsOptions {
  double momentum = 0.9;            ///< 0: there is no state
  bool nesterov = false;            ///< needs a momentum
  double trust_coefficient = 1e-3;  ///< factor of ||p||, see make_lars()
  double epsilon = 1e-8;            ///< added to the denominator there
  bool adapt_undecayed = false;     ///< also slots without weight decay are scaled
};
/// LARS, You, Gitman & Ginsburg 2017, in the form of SGD on scaled gradients (as NVIDIA's LARC without clipping):
/// (g + decay * p) * trust_coefficient * ||p|| / (||g|| + decay * ||p|| + epsilon), factor 1 where a norm is 0; then
/// torch.optim.SGD without decay. State momentum_buffer, if there is momentum. One SumOverShards a step.
std::unique_ptr<Optimizer> make_lars(std::vector<Slot> slots, const LarsOptions& options,
                                     const CommonOptions& common = {});

/// The factor of Muon's orthogonal updates, by the rows and columns of a matrix as it is stored (out x in of a Linear).
enum class MuonScale : unsigned char {
  shape_scaling,  ///< sqrt(max(1, rows / columns)): Jordan 2024; torch.optim.Muon's "original"
  spectral,       ///< sqrt(max(rows, columns)): Liu et al. 2025; times 0.2 torch.optim.Muon's "match_rms_adamw"
  unit_rms_norm   ///< sqrt(rows / columns): Bernstein 2025
};
/// The coefficients (a, b, c) of the iteration x <- a x + (b x x' + c (x x')^2) x.
enum class MuonCoefficients : unsigned char {
  simple,  ///< 3.4445, -4.7750, 2.0315 in every step: Jordan 2024, torch.optim.Muon
  quintic  ///< five triples of modded-nanogpt, one after the other, and again from the first: Megatron-LM
};
/// Muon (Jordan et al. 2024).
struct MuonOptions {
  double momentum = 0.95;                                    ///< decay of the average of gradients
  bool nesterov = true;                                      ///< the gradient itself counts once more
  std::int64_t steps = 5;                                    ///< how often the iteration runs
  MuonCoefficients coefficients = MuonCoefficients::simple;  ///< what each of its steps multiplies with
  MuonScale scale = MuonScale::shape_scaling;                ///< how long updates are
  double extra_scale = 1;                                    ///< a factor besides
  double epsilon = 1e-7;                                     ///< the least norm that a matrix is divided by
  AdamWOptions others = {};                                  ///< for slots that are not orthogonal
};
/// Muon, Jordan et al. 2024 (kellerjordan.github.io/posts/muon), as torch.optim.Muon: the average m of gradients, or
/// with nesterov g + momentum (m - g), is brought near the closest orthogonal matrix by Newton and Schulz's iteration,
/// in the precision of the parameters, and subtracted times rate and scale; decay is decoupled. Slots that are not
/// `orthogonal` follow make_adamw(). States momentum_buffer, or exp_avg and exp_avg_sq. Throws InputError, too, for an
/// orthogonal slot without two dimensions. One SumOverShards a matrix and step: its pieces are gathered, each rank
/// iterates on the whole and takes its own piece, so results do not depend on the cuts.
std::unique_ptr<Optimizer> make_muon(std::vector<Slot> slots, const MuonOptions& options,
                                     const CommonOptions& common = {});

}  // namespace tessera::optim
