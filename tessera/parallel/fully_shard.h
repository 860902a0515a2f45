#pragma once
/// \file
/// One engine for DDP, ZeRO-1/2/3, FSDP's strategies and HSDP, around any unmodified torch::nn::Module.
///
///   tessera::init();                                                       // from any launcher's environment
///   auto net = tessera::deferred<MyTransformer>(config);                   // or simply a module
///   tessera::Sharded fsdp(*net, {.strategy = tessera::Strategy::full_shard, .wrap = tessera::by_class({"MyBlock"})});
///   torch::optim::AdamW optimizer(fsdp.parameters(), 3e-4);                // local shards
///   for (auto& batch : loader) {
///     fsdp.zero_grad();
///     loss(net->forward(batch.x), batch.y).backward();
///     fsdp.clip_grad_norm(1.0);
///     optimizer.step();
///   }

#include <torch/nn/module.h>

#include <tessera/comm/group.h>
#include <tessera/layout/residency.h>
#include <tessera/layout/strategy.h>
#include <tessera/layout/units.h>
#include <tessera/nn/moe/source_gradients.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/compression/compression.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// An option that does not apply to the strategy is refused with the reason (parallel/sharding/check_options.h), never
/// ignored.
struct ShardingOptions {
  StrategyName strategy = Strategy::full_shard;  ///< a row of the table in layout/strategy.h, or its name as text
  comm::Group group = {};                        ///< the data-parallel ranks; empty: all of world()
  /// Ranks per shard group, consecutive; the other groups are replicas (HSDP). 0: the strategy's default (all, or those
  /// of this host). Must divide the group's size. Another value turns every sharding strategy into its hybrid form.
  int shard_group_size = 0;
  /// The modules that become units. DDP, ZeRO-1 and ZeRO-2, which keep whole parameters and gather nothing, use
  /// buckets; there units determine where buckets end, and ignored_modules are refused.
  layout::WrapPolicy wrap = {};

  /// Type of gathered parameters; empty: that of the shards. BatchNorm parameters keep the type of their statistics.
  std::optional<at::ScalarType> param_dtype = {};
  std::optional<at::ScalarType> reduce_dtype = {};  ///< type of gradients on the wire; empty: fp32 (fp64 stays)
  std::optional<at::ScalarType> buffer_dtype = {};  ///< floating-point buffers are converted once

  comm::Reduction reduction = comm::Reduction::mean;  ///< over ranks: mean or sum
  /// f: gradients are divided by f before the reduction and multiplied by f after it. (A mean is then a sum times f /
  /// size.) Not with logical_shards.
  double gradient_predivide_factor = 1;
  /// V > 0: fixed order (docs/strategies.md), as in DdpOptions::logical_shards.
  std::int64_t logical_shards = 0;
  bool find_unused_parameters = false;  ///< false: a parameter without gradient on some rank is an error that names it
  /// Ranks may skip units or use them in different orders (data-dependent branches): all ranks agree on every gather
  /// first, and gradients are reduced when backward ends. Slower. Without it such a deviation is an error that names
  /// the unit.
  bool data_dependent = false;

  bool forward_prefetch = true;  ///< gather the next unit while this one computes (in the order of the last forward)
  layout::BackwardPrefetch backward_prefetch = layout::BackwardPrefetch::pre;  ///< when backward gathers the next unit
  bool limit_all_gathers = true;  ///< at most one unit is gathered ahead; false: three
  /// Empty: the strategy's default. (Where other systems take an int here, set shard_group_size.)
  std::optional<bool> reshard_after_forward = {};
  bool reshard_root = false;                   ///< the root unit is also freed after its forward
  bool overlap_comm = true;                    ///< false: every collective is waited for at once
  std::int64_t persistence_threshold = 0;      ///< parameters of at most this many elements stay whole between steps
  double first_bucket_mb = 1, bucket_mb = 25;  ///< MiB; DDP, ZeRO-1, ZeRO-2

  bool sync_module_states = true;   ///< broadcast rank 0's parameters and buffers at construction
  bool broadcast_buffers = true;    ///< broadcast rank 0's buffers after each reduction (as Ddp)
  Offload offload = Offload::none;  ///< states kept in files (on the CPU) instead of memory
  std::string offload_folder = {};  ///< on the CPU "offload" is memory mapped from a file here; empty: TMPDIR
  std::shared_ptr<parallel::Compression> compression = {};  ///< for gradients on the wire; nullptr: none
  bool check_finite = true;  ///< record which rank's gradient was the first non-finite one: clip_grad_norm() names it

  /// Called with every flat gradient of this rank, whole, just before it is reduced (padding is 0): the sum of the
  /// step's backward passes in DDP and ZeRO-1, the gradient of one in the others. Runs on the backward's thread and
  /// must neither change nor keep the tensor. Not called where nothing is reduced (one rank).
  std::function<void(const at::Tensor& flat)> before_reduction = {};

  /// Fills a parameter's local part from another source (a file): elements [begin, begin + piece.numel()) of the
  /// flattened parameter. Returns false to keep the module's own values. Called for every parameter with the part that
  /// this rank holds (an empty one, too).
  std::function<bool(const std::string& name, at::IntArrayRef shape, std::int64_t begin, at::Tensor piece)> load = {};

  /// Ranks that hold the other stages of a pipelined model, with this stage's index as this process's rank (pp); empty:
  /// the module is the whole model. Norms include the other stages, and checkpoints hold all of them.
  comm::Group stages = {};
  /// Parameters that an earlier stage replicates (tied embeddings): norms and checkpoints count them there only.
  std::vector<std::string> held_by_earlier_stage = {};
  /// With experts divided among ranks (expert parallelism): the non-expert parameters also have replicas outside of
  /// `group`, on `ranks`. Their gradients are summed over `ranks` after the sum over `group`. While backward runs,
  /// `ranks` must carry only its own messages: use a World::split() that nothing else sends over. The reduction must be
  /// a sum (of losses that are divided by the number of all ranks) and is not compressed.
  ///
  /// In fixed order, micro-batch (i P + p) S + s is backward i of rank s of `group` (S ranks) and rank p of `ranks` (P
  /// ranks, outermost). One backward gives an expert the gradients of micro-batches of all P ranks; `per_source` keeps
  /// them separate per rank (expert_parallel()).
  struct SharedByExperts {
    comm::Group ranks = {};                                   ///< expert replicas, including this rank; empty: none
    std::function<bool(const std::string& name)> has = {};    ///< whether the parameter is shared (not an expert's)
    c10::intrusive_ptr<nn::SourceGradients> per_source = {};  ///< with logical_shards only
  };
  SharedByExperts shared_by_experts = {};

  bool reshard_alone = false;  ///< also run all of the machinery on a single rank (to measure it)
};

/// For ShardingOptions::wrap: modules of these C++ classes become units; names may lack the namespace and "Impl".
inline layout::WrapPolicy by_class(std::vector<std::string> classes) {
  return {.kind = layout::WrapPolicy::Kind::by_class, .classes = std::move(classes)};
}
/// For ShardingOptions::wrap: a module becomes a unit when it has this many elements that do not belong to a unit
/// inside it.
inline layout::WrapPolicy by_size(std::int64_t min_num_params) {
  return {.kind = layout::WrapPolicy::Kind::by_size, .min_num_params = min_num_params};
}

/// This rank's part of one parameter.
struct ShardedParameter {
  std::string name;                 ///< as in the module's named_parameters()
  std::vector<std::int64_t> shape;  ///< shape of the whole parameter
  std::int64_t begin = 0;           ///< the part is elements [begin, begin + local.numel()) of the flattened parameter
  at::Tensor local;                 ///< 1-D leaf (the module's own parameter where nothing is sharded); grad(): reduced
  bool divided = false;  ///< other ranks of the shard group hold other parts; false: every rank holds the whole
};

/// Bytes on this rank, by purpose.
struct ShardingMemory {
  std::int64_t shards = 0;               ///< resident parameter shards
  std::int64_t gradients = 0;            ///< gradient shards (whole gradients where nothing is sharded)
  std::int64_t whole = 0;                ///< currently gathered parameters
  std::int64_t whole_peak = 0;           ///< peak of `whole` so far
  std::int64_t flat_gradients = 0;       ///< flat gradient buffers being filled or reduced
  std::int64_t flat_gradients_peak = 0;  ///< peak of `flat_gradients` so far
  std::int64_t pool = 0;                 ///< buffers kept for reuse
  std::int64_t offloaded = 0;            ///< allocated in files so far: shards, optimizer states (Offload)
};

/// One row of the table printed at start.
struct ShardingUnit {
  std::string name;  ///< module path, "root" or "small parameters"; under ZeRO-1 and ZeRO-2 "bucket N"
  std::vector<std::string> parameters = {};  ///< names, in the order of the flat buffer
  std::int64_t numel = 0;                    ///< without padding
  std::int64_t padded = 0;                   ///< with padding
  std::int64_t shard_bytes = 0;              ///< this rank's shard; always in memory
  std::int64_t present_bytes = 0;            ///< the gathered parameters, while in memory
  std::string prefetch = {};                 ///< the unit gathered while this one computes; "" until known
};

/// The engine around one module, from construction to restore(). One backward at a time.
class Sharded {
 public:
  /// Collective. Throws Error when ranks' modules differ; InputError for options that do not fit. The module must
  /// outlive this object. Its parameters keep their identity; where the strategy shards them, their memory is allocated
  /// and freed as needed.
  explicit Sharded(torch::nn::Module& module, ShardingOptions options = {});
  /// Sharded parameters that still belong to the module are NaN afterwards, without memory; call restore() first to
  /// keep them.
  ~Sharded();
  Sharded(Sharded&&) noexcept;

  /// Local parts of the trained parameters, for any torch::optim optimizer, in registration order; tied ones appear
  /// once.
  std::vector<at::Tensor> parameters() const;
  /// The same with their positions; valid while this object exists.
  const std::vector<ShardedParameter>& named_parameters() const;
  /// The frozen parameters, in registration order; gather_like() accepts them, too.
  std::vector<ShardedParameter> frozen_parameters() const;
  /// The trained parameters as optimizer slots; `edit` may set decay and rate scale.
  std::vector<optim::Slot> slots(const std::function<void(optim::Slot&)>& edit = {}) const;
  /// The allocator of offloaded optimizer state; empty unless Offload::optimizer or all.
  optim::StateAllocator state_allocator() const;
  /// Sums over the ranks that hold different parts; for optimizers with per-parameter norms.
  optim::SumOverShards sum_over_shards() const;

  void zero_grad();  ///< makes every gradient undefined, including those kept by paused backward passes
  /// While the guard exists, DDP and ZeRO-1 accumulate locally. It has no effect on ZeRO-2, ZeRO-3 and FSDP, which
  /// reduce every backward into the shards' sums (no rank holds whole gradients).
  class NoSync {
   public:
    explicit NoSync(Sharded& sharded);  ///< throws InputError with logical_shards
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Sharded& sharded_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// While the guard exists, backward passes accumulate locally under every strategy (whole gradients are kept even by
  /// strategies that divide them), and one pass may reach any part of the module, as the passes of a pipeline's batch
  /// do. Call reduce() after it.
  class AccumulateLocally {
   public:
    explicit AccumulateLocally(Sharded& sharded);  ///< throws InputError with logical_shards
    ~AccumulateLocally();
    AccumulateLocally(const AccumulateLocally&) = delete;
    AccumulateLocally& operator=(const AccumulateLocally&) = delete;

   private:
    Sharded& sharded_;
  };
  /// Reduces the gradients left by paused backward passes, as the last backward of a step would. Call between backward
  /// passes, outside of guards. Collective.
  void reduce();

  /// Returns the global L2 norm of the reduced gradients, bitwise identical on every rank and for every strategy.
  /// Collective.
  double grad_norm() const;
  /// Returns the same norm and scales the gradients in place when it exceeds max_norm (<= 0: never). Throws Error on
  /// every rank when it is not finite, naming rank and parameter (check_finite).
  double clip_grad_norm(double max_norm);
  /// The norm and clip_coefficient() on the CUDA device of all gradients, without blocking the host: step_scalars() of
  /// optim/norm.h. Collective.
  at::Tensor step_scalars(double max_norm) const;
  /// Multiplies all gradients on this rank by `factor`, including unreduced ones left by paused backward passes.
  void scale_gradients(double factor);
  /// Clamps every gradient element to [-limit, limit].
  void clip_grad_value(double limit);

  /// While it exists, whole parameters (all, or those in the units of `names`) may be read, and changed with
  /// write_back: all ranks must make the same change, and each keeps its own part. Collective at both ends.
  struct UnshardedOptions {
    std::vector<std::string> names = {};  ///< parameters to read; empty: all
    bool write_back = false;  ///< changes are written into the shards at the end; false: changing them throws
  };
  class Unsharded {
   public:
    Unsharded(Sharded& sharded, const UnshardedOptions& options);  ///< throws InputError for unknown names
    ~Unsharded();
    Unsharded(const Unsharded&) = delete;
    Unsharded& operator=(const Unsharded&) = delete;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };
  [[nodiscard]] Unsharded unsharded(const UnshardedOptions& options) { return Unsharded(*this, options); }

  /// Calls visit(name, tensor) for every parameter (also frozen ones, but no buffers) in registration order, gathering
  /// one unit at a time: whole tensors in the shards' dtype, valid during the call. Runs on every rank; collective.
  void visit_parameters(const std::function<void(const std::string&, const at::Tensor&)>& visit);
  /// Loads whole tensors (each rank takes its part); names as above. Throws InputError for unknown names or shapes.
  /// Collective.
  void load_parameters(const std::function<at::Tensor(const std::string&)>& whole);
  /// Gathers a tensor laid out like a local part (an optimizer state) into the whole one, on every rank. Collective.
  at::Tensor gather_like(const ShardedParameter& parameter, const at::Tensor& local_state) const;

  /// keep(i, begin, piece): elements [begin, begin + piece.numel()) of named_parameters()[i], flattened, valid during
  /// the call.
  using PieceVisitor = std::function<void(std::size_t index, std::int64_t begin, const at::Tensor& piece)>;
  /// Brings every trained parameter whole to the rank that owners[i] names (a rank of options().group; -1: none). Each
  /// rank sends its pieces to the owners in messages of 1 MiB, which is all the memory that owners need besides the
  /// shards. On the owner `keep` gets the parameters in gather_order() and the pieces of each in ascending order.
  /// `keep` must not throw on one rank while others continue. Collective.
  void gather_to_owners(const std::vector<int>& owners, const PieceVisitor& keep) const;
  /// The same for tensors laid out like the local parts (optimizer states), each of one type on all ranks; undefined
  /// tensors are skipped.
  void gather_like_to_owners(const std::vector<at::Tensor>& held, const std::vector<int>& owners,
                             const PieceVisitor& keep) const;
  /// Widest elements first, then by name; the same under every strategy.
  std::vector<std::size_t> gather_order() const;
  /// By index in named_parameters(): the rank of the shard group that already holds the whole parameter, so that
  /// gather_to_owners() need not move it; -1 if it is spread over several ranks or every rank has it.
  std::vector<int> whole_holders() const;

  /// Ends a forward that is not followed by a backward (evaluation): frees gathered parameters, and with data_dependent
  /// keeps ranks that used fewer units serving the others. Needed only in that case, and collective.
  void end_pass();
  /// Turns the parameters back into ordinary whole tensors with their current values, and detaches the engine from the
  /// module. Collective.
  void restore();

  /// Throws Error that names the first parameter and rank whose bits differ between replicas. Collective.
  void check_replicas() const;

  std::vector<ShardingUnit> units() const;  ///< the root comes first; empty if nothing is sharded (DDP, one rank)
  /// Names of the parameters that are reduced together, in the order of reduction (set by the first backward).
  std::vector<std::vector<std::string>> buckets() const;
  /// The order of trained parameters learnt from the first backward, for a checkpoint; empty before it.
  std::vector<std::size_t> gradient_order() const;
  /// Starts with that order, so that a resumed run adds gradients in the buckets of the saved one. Call before the
  /// first backward, with the same order on every rank. Returns false if the order is not of these parameters; the
  /// order is then learnt in the next backward.
  bool set_gradient_order(const std::vector<std::size_t>& order);
  ShardingMemory memory() const;           ///< current bytes, and peaks so far
  const ShardingOptions& options() const;  ///< as given to the constructor
  int shard_ranks() const;                 ///< S
  int replicate_ranks() const;             ///< R

  struct Impl;  ///< parallel/sharding/engine.h

 private:
  std::unique_ptr<Impl> impl_;
};

/// Sharded(module, options).
inline Sharded fully_shard(torch::nn::Module& module, ShardingOptions options = {}) {
  return Sharded(module, std::move(options));
}
inline Sharded::Unsharded unsharded(Sharded& sharded, const Sharded::UnshardedOptions& options = {}) {
  return Sharded::Unsharded(sharded, options);
}  ///< Sharded::unsharded() as a function

}  // namespace tessera
