#pragma once
/// \file
/// One engine for DDP, ZeRO-1/2/3, FSDP's strategies and HSDP, around any torch::nn::Module, unedited.
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

/// An option that has no use under the strategy is refused with the reason (parallel/sharding/check_options.h), never
/// ignored.
struct ShardingOptions {
  StrategyName strategy = Strategy::full_shard;  ///< a row of the table in layout/strategy.h, or its name as text
  comm::Group group = {};                        ///< the data-parallel ranks; empty: all of world()
  /// Ranks per shard group, consecutive; the other groups are replicas (HSDP). 0: what the strategy says (all, or those
  /// of this host). Must divide the group's size. Another value turns every sharding strategy into its hybrid form.
  int shard_group_size = 0;
  /// Which modules become units. DDP, ZeRO-1 and ZeRO-2, where whole parameters stay and nothing is gathered, are cut
  /// in buckets; there units say where buckets end, and ignored_modules are refused.
  layout::WrapPolicy wrap = {};

  /// Type of gathered parameters; empty: that of the shards. BatchNorms keep the type of their statistics.
  std::optional<at::ScalarType> param_dtype = {};
  std::optional<at::ScalarType> reduce_dtype = {};  ///< type of gradients on the wire; empty: fp32 (fp64 stays)
  std::optional<at::ScalarType> buffer_dtype = {};  ///< floating-point buffers are converted once

  comm::Reduction reduction = comm::Reduction::mean;  ///< over ranks: mean or sum
  /// f: on the wire, gradients are divided by f; after the reduction they are multiplied by f. (A mean is then a sum
  /// times f / size.) Not with logical_shards.
  double gradient_predivide_factor = 1;
  /// V > 0: fixed order (docs/strategies.md), as DdpOptions::logical_shards.
  std::int64_t logical_shards = 0;
  bool find_unused_parameters = false;  ///< false: a parameter without gradient on some rank is an error that names it
  /// Ranks may skip units, or use them in another order (branches that depend on data): every gather is agreed upon by
  /// all ranks first, and gradients are reduced when backward ends. Slower; without it such a deviation is an error
  /// that names the unit.
  bool data_dependent = false;

  bool forward_prefetch = true;  ///< the next unit is gathered while this one computes (order: the last forward's)
  layout::BackwardPrefetch backward_prefetch = layout::BackwardPrefetch::pre;  ///< when backward gathers the next one
  bool limit_all_gathers = true;  ///< at most one unit is gathered ahead; false: three
  std::optional<bool> reshard_after_forward =
      {};                                      ///< empty: the strategy's; (an int in other systems: shard_group_size)
  bool reshard_root = false;                   ///< the root unit, too, is dropped after its forward
  bool overlap_comm = true;                    ///< false: every collective is waited for at once
  std::int64_t persistence_threshold = 0;      ///< parameters of at most so many elements stay whole between steps
  double first_bucket_mb = 1, bucket_mb = 25;  ///< MiB; DDP, ZeRO-1, ZeRO-2

  bool sync_module_states = true;   ///< rank 0's parameters and buffers for everyone, at construction
  bool broadcast_buffers = true;    ///< rank 0's buffers for everyone after each reduction (as Ddp)
  Offload offload = Offload::none;  ///< what is kept in files (on the CPU) instead of memory
  std::string offload_folder = {};  ///< on the CPU "offload" is memory mapped from a file here; empty: TMPDIR
  std::shared_ptr<parallel::Compression> compression = {};  ///< for gradients on the wire; nullptr: none
  bool check_finite =
      true;  ///< remember which rank's gradient was the first that is not finite: clip_grad_norm() names it

  /// Called with every flat gradient of this rank, whole, just before it is reduced (padding is 0): in DDP and
  /// ZeRO-1 the sum of the step's backwards, in the others that of one. In the thread of the backward; it must neither
  /// change nor keep the tensor. Not called where nothing is reduced (one rank).
  std::function<void(const at::Tensor& flat)> before_reduction = {};

  /// Fills a parameter's local part from elsewhere (a file): elements [begin, begin + piece.numel()) of the parameter,
  /// flat. Returns false to leave it to the module's own values. Called for every parameter with the part that this
  /// rank holds (an empty one, too).
  std::function<bool(const std::string& name, at::IntArrayRef shape, std::int64_t begin, at::Tensor piece)> load = {};

  /// The ranks that hold the other stages of a pipelined model, this one's place among them its rank (pp); empty: the
  /// module is the whole model. Norms add theirs, checkpoints hold all of it.
  comm::Group stages = {};
  /// Parameters that an earlier stage replicates (tied embeddings): norms and checkpoints count them there only.
  std::vector<std::string> held_by_earlier_stage = {};
  /// With experts divided among ranks (expert parallelism): the parameters that are not an expert's have replicas
  /// outside of `group`, on `ranks`. Their gradients are summed over `ranks` after the sum over `group`. While backward
  /// runs, `ranks` carries its own messages only: take a World::split() that nobody else sends over. The reduction must
  /// be a sum (of losses that are divided by the number of all ranks), and is not compressed.
  ///
  /// In fixed order, micro-batch (i P + p) S + s is backward i of rank s of `group` (S ranks) and rank p of `ranks`
  /// (P): those of `ranks` are outermost. One backward gives an expert the gradients of micro-batches of all P ranks;
  /// `per_source` keeps them separately per rank (expert_parallel()).
  struct SharedByExperts {
    comm::Group ranks = {};                                   ///< expert replicas, this rank included; empty: none
    std::function<bool(const std::string& name)> has = {};    ///< whether the parameter is not an expert's
    c10::intrusive_ptr<nn::SourceGradients> per_source = {};  ///< with logical_shards only
  };
  SharedByExperts shared_by_experts = {};

  bool reshard_alone = false;  ///< do everything also on one rank (to measure it)
};

/// For ShardingOptions::wrap: modules of these C++ classes become units; names may lack the namespace and "Impl".
inline layout::WrapPolicy by_class(std::vector<std::string> classes) {
  return {.kind = layout::WrapPolicy::Kind::by_class, .classes = std::move(classes)};
}
/// For ShardingOptions::wrap: a module with so many elements that no unit inside it took becomes one.
inline layout::WrapPolicy by_size(std::int64_t min_num_params) {
  return {.kind = layout::WrapPolicy::Kind::by_size, .min_num_params = min_num_params};
}

/// This rank's part of one parameter.
struct ShardedParameter {
  std::string name;                 ///< as the module's named_parameters() has it
  std::vector<std::int64_t> shape;  ///< shape of the whole parameter
  std::int64_t begin = 0;           ///< the part is elements [begin, begin + local.numel()) of the flattened parameter
  at::Tensor local;                 ///< 1-D leaf (the module's own parameter where nothing is sharded); grad(): reduced
  bool divided = false;  ///< other ranks of the shard group hold other parts; false: every rank holds the whole
};

/// Bytes on this rank, by what they are for.
struct ShardingMemory {
  std::int64_t shards = 0;               ///< parameters that stay
  std::int64_t gradients = 0;            ///< gradient shards (whole gradients where nothing is sharded)
  std::int64_t whole = 0;                ///< gathered parameters now
  std::int64_t whole_peak = 0;           ///< the most that was gathered at one time, so far
  std::int64_t flat_gradients = 0;       ///< buffers of gradients that fill or are reduced now
  std::int64_t flat_gradients_peak = 0;  ///< the most of these at one time, so far
  std::int64_t pool = 0;                 ///< buffers kept for reuse
  std::int64_t offloaded = 0;            ///< allocated in files so far: shards, optimizer states (Offload)
};

/// One row of the table at start.
struct ShardingUnit {
  std::string name;  ///< path of the module, "root" or "small parameters"; of ZeRO-1 and ZeRO-2 "bucket N"
  std::vector<std::string> parameters = {};  ///< names, in the order of the flat buffer
  std::int64_t numel = 0;                    ///< without padding
  std::int64_t padded = 0;                   ///< with padding
  std::int64_t shard_bytes = 0;              ///< this rank's shard, always in memory
  std::int64_t present_bytes = 0;            ///< the gathered parameters, while they are in memory
  std::string prefetch = {};                 ///< the unit gathered while this one computes; "" when not known yet
};

/// The engine around one module, from construction to restore(). One backward at a time.
class Sharded {
 public:
  /// Collective. Throws Error when ranks' modules differ; InputError for options that do not fit. The module must
  /// outlive this object. Its parameters keep their identity; where the strategy shards them, their memory comes and
  /// goes.
  explicit Sharded(torch::nn::Module& module, ShardingOptions options = {});
  /// Sharded parameters that are still the module's are NaN afterwards, without memory; restore() first to keep them.
  ~Sharded();
  Sharded(Sharded&&) noexcept;

  /// Local parts of the trained parameters, for any torch::optim optimizer. In the order of registration, tied ones
  /// once.
  std::vector<at::Tensor> parameters() const;
  const std::vector<ShardedParameter>& named_parameters() const;  ///< with their places; valid while this lives
  /// The frozen ones, in the order of registration; they are gathered by gather_like(), too.
  std::vector<ShardedParameter> frozen_parameters() const;
  /// The trained ones as optimizer slots; `edit` may set decay and rate scale.
  std::vector<optim::Slot> slots(const std::function<void(optim::Slot&)>& edit = {}) const;
  /// Where offloaded optimizer state is to be allocated; empty unless Offload::optimizer or all.
  optim::StateAllocator state_allocator() const;
  /// Sums over the ranks that hold different parts: for optimizers with per-parameter norms.
  optim::SumOverShards sum_over_shards() const;

  void zero_grad();  ///< makes every gradient undefined, those kept by paused backwards, too
  /// While the guard lives, DDP and ZeRO-1 accumulate locally; ZeRO-2, ZeRO-3 and FSDP reduce every backward into the
  /// shards' sums anyway (no rank holds whole gradients), so it does nothing for them.
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

  /// While the guard lives, backwards accumulate locally under every strategy (those that divide gradients keep whole
  /// ones meanwhile), and one may reach any part of the module: the passes of a pipeline's batch. reduce() after it.
  class AccumulateLocally {
   public:
    explicit AccumulateLocally(Sharded& sharded);  ///< throws InputError with logical_shards
    ~AccumulateLocally();
    AccumulateLocally(const AccumulateLocally&) = delete;
    AccumulateLocally& operator=(const AccumulateLocally&) = delete;

   private:
    Sharded& sharded_;
  };
  /// Reduces what paused backwards have left, as the last backward of a step would. Between backwards, outside of
  /// guards. Collective.
  void reduce();

  /// Global L2 norm of the reduced gradients, the same bits on every rank and for every strategy. Collective.
  double grad_norm() const;
  /// The same; gradients are scaled in place when it exceeds max_norm (<= 0: never). Throws Error on every rank when it
  /// is not finite, naming rank and parameter (check_finite).
  double clip_grad_norm(double max_norm);
  /// The norm and clip_coefficient() on the CUDA device of all gradients, without a wait of the host: optim/norm.h's
  /// step_scalars(). Collective.
  at::Tensor step_scalars(double max_norm) const;
  /// All gradients that are here, those that paused backwards have left unreduced, too, are multiplied by `factor`.
  void scale_gradients(double factor);
  /// Clamps every element to [-limit, limit].
  void clip_grad_value(double limit);

  /// While it lives, whole parameters (all, or those in the units of `names`) may be read, and with write_back changed:
  /// all ranks make the same change, each keeps its own part. Collective at both ends.
  struct UnshardedOptions {
    std::vector<std::string> names = {};  ///< the parameters to read; empty: all
    bool write_back = false;              ///< changes go into the shards at the end; false: changing them throws
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

  /// Calls visit(name, tensor) for every parameter (frozen ones too, not buffers) in the order of registration, unit by
  /// unit gathered: whole, in the shards' dtype, valid during the call. On every rank; collective.
  void visit_parameters(const std::function<void(const std::string&, const at::Tensor&)>& visit);
  /// Puts whole tensors back (each rank takes its part); names as above. Throws InputError for unknown names or shapes.
  /// Collective.
  void load_parameters(const std::function<at::Tensor(const std::string&)>& whole);
  /// A tensor laid out like a local part (an optimizer state) -> the whole one, on every rank. Collective.
  at::Tensor gather_like(const ShardedParameter& parameter, const at::Tensor& local_state) const;

  /// keep(i, begin, piece): elements [begin, begin + piece.numel()) of named_parameters()[i], flattened, valid during
  /// the call.
  using PieceVisitor = std::function<void(std::size_t index, std::int64_t begin, const at::Tensor& piece)>;
  /// Brings every trained parameter whole to the rank that owners[i] names (of options().group; -1: to none): each rank
  /// sends its pieces to the owners in messages of 1 MiB, which is all the memory that the owners need beside the
  /// shards. On the owner `keep` gets the pieces of a parameter in ascending order, and the parameters in
  /// gather_order(). `keep` must not throw where other ranks go on. Collective.
  void gather_to_owners(const std::vector<int>& owners, const PieceVisitor& keep) const;
  /// The same for tensors laid out like the local parts (optimizer states), of one type each on all ranks; an undefined
  /// one is left out.
  void gather_like_to_owners(const std::vector<at::Tensor>& held, const std::vector<int>& owners,
                             const PieceVisitor& keep) const;
  std::vector<std::size_t> gather_order() const;  ///< wide elements first, then by name, under every strategy
  /// By named_parameters(): the rank of the shard group that holds all of it already, which gather_to_owners() need
  /// not move; -1 for one that lies on several, or that every rank has.
  std::vector<int> whole_holders() const;

  /// Ends a forward that no backward follows (evaluation): gathered parameters are dropped, and with data_dependent
  /// ranks that used fewer units serve the others. Only needed there. Collective then.
  void end_pass();
  /// Gives the module ordinary whole parameters back, with their values, and ends the engine's work on it. Collective.
  void restore();

  /// Throws Error naming the first parameter and rank whose bits differ between replicas. Collective.
  void check_replicas() const;

  std::vector<ShardingUnit> units() const;  ///< the root's first; empty where nothing is divided (DDP, one rank)
  /// Names of the parameters that are reduced together, in the order of reduction (it follows the first backward).
  std::vector<std::vector<std::string>> buckets() const;
  /// The order of trained parameters that the first backward has taught, for a checkpoint; empty: none yet.
  std::vector<std::size_t> gradient_order() const;
  /// Begins with that order, so that a resumed training adds gradients in the buckets of the one that was saved. Before
  /// the first backward, the same on every rank. False: it is not of these parameters, and an order is learnt anew.
  bool set_gradient_order(const std::vector<std::size_t>& order);
  ShardingMemory memory() const;           ///< now, and peaks so far
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
