#pragma once
/// \file
/// The gradient reducer of every strategy: flat gradients are filled while backward runs and are reduced as soon as
/// they are full, in one order on every rank. It controls the timing; flat_gradient.h manages the memory,
/// gradient_reduction.h the collectives.

#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/dispatch/module_units.h>
#include <tessera/parallel/sharding/flat_gradient.h>
#include <tessera/parallel/sharding/whole_gradient.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::parallel {

struct GradientReducerOptions {
  ReductionOptions reduction;
  bool find_unused_parameters = false;
  bool wait_at_once = false;         ///< wait for each reduction as soon as it is started, without overlap
  bool reduce_at_end = false;        ///< start all reductions when backward ends, including unused parameters
  bool check_finite = true;          ///< record the first non-finite gradient
  comm::Group expert_replicas = {};  ///< GradientGroups::expert_replicas of the non-expert gradients; empty: none
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};  ///< GradientGroups::per_source of the experts' gradients
  std::function<void(const at::Tensor& flat)> before = {};  ///< called with each flat gradient before its reduction
};

/// The states of one flat gradient in a backward:
///
///   waiting --first gradient--> filling --all gradients--> full --its turn--> reducing --> reduced
///
/// - Reductions start strictly in one order, so that ranks agree: at first the order of the list, later the order in
///   which rank 0's gradients became ready. Of the gradients with memory from a pool, at most two are in use besides
///   the one being filled: the oldest reduction is waited for.
/// - The end of backward starts the reductions that lack gradients (with zeros in their place), waits for all, and
/// shows the
///   results. Parameters that no rank used keep their grad(), even if it is undefined.
/// - Paused backward passes accumulate locally and reduce nothing.
/// - Fixed order (docs/strategies.md): every backward is a micro-batch, V = logical_shards of them make a step over all
///   ranks, and micro-batch i = k * ranks + rank is the k-th backward of a rank: for any number of ranks the sum is
///   (((g_0 + g_1) + g_2) + ...), bit for bit. With expert replicas: ShardingOptions::SharedByExperts.
///
/// A backward that gives no parameter a gradient reduces nothing (unless reduce_at_end). A failed one drops all
/// gradients. One backward at a time; another model's may run in another thread when the parameters are on the CPU. The
/// caller serialises all calls (the engine's mutex).
class GradientReducer {
 public:
  /// Flat gradients in the order of their first reduction; the objects they refer to must outlive this one.
  /// `complete(unit)` is called when the last gradient of a unit is ready. Throws InputError.
  GradientReducer(comm::Group all, std::vector<std::unique_ptr<FlatGradient>> flats, GradientReducerOptions options,
                  std::function<void(std::size_t unit)> complete);
  /// Buckets of whole gradients: at first in the reverse order of `parameters` (trainable leaves on all.device(), the
  /// same on every rank); after the first reduction rebuilt in the order in which rank 0's gradients became ready.
  GradientReducer(comm::Group all, std::vector<NamedTensor> parameters, BucketSizes sizes,
                  GradientReducerOptions options);

  /// All parameters, by index. Call on_gradient(index) when autograd has accumulated into a parameter.
  std::vector<at::Tensor> parameters() const;

  /// Call when a backward pass begins. `paused`: gradients accumulate locally, and end() reduces nothing.
  void begin(bool paused);
  void on_gradient(std::size_t index);
  /// Call when a backward pass ends: reduces the remaining gradients and shows the results. Collective. Returns true
  /// when gradients were reduced.
  bool end();
  /// Reduces and shows the gradients of paused backward passes. Call between backward passes; collective.
  void reduce();
  /// Call when the backward failed: drops its gradients and all earlier ones.
  void fail() noexcept;
  /// Whether a running backward has already given one of these parameters a gradient.
  bool touched() const { return touched_; }
  /// Whether no backward has touched the parameters, or the one that did ends in this thread.
  bool ends_here() const { return !touched_ || std::this_thread::get_id() == owner_; }
  void zero_grad();
  /// Multiplies the gradients of paused backward passes that grad() does not show. Call between backward passes.
  void scale_unreduced(double factor);
  /// Names of the parameters that are reduced together, in the order of the reductions.
  std::vector<std::vector<std::string>> buckets() const;
  /// The learnt order, as indices of parameters(); empty before the first backward.
  const std::vector<std::size_t>& learnt_order() const { return learnt_; }
  /// Starts with a previously learnt order (from a checkpoint), the same on every rank. Call before the first backward.
  /// Returns false, without changes, for an order of other parameters.
  bool follow(const std::vector<std::size_t>& order);
  /// Bytes of gradient shards.
  std::int64_t shard_bytes() const;
  /// Name of this rank's first parameter with a non-finite gradient since the last zero_grad().
  const std::string& first_not_finite() const { return first_not_finite_; }

 private:
  struct Flat {
    std::unique_ptr<FlatGradient> gradient;
    std::vector<bool> ready = {};  ///< by member: its gradient arrived in this backward
    std::size_t pending = 0;       ///< members that are not ready
    bool started = false;          ///< reduced, or being reduced, in this backward
    GradientReduction reduction = {};
  };
  struct Place {
    std::size_t flat = 0, member = 0;
  };

  void place(std::vector<std::unique_ptr<FlatGradient>> flats);
  void check_types() const;
  void rebuild();
  void claim(const FlatGradient::Member& member);
  void start_in_order(bool all);
  void start(std::size_t f);
  void finish(std::size_t f);
  void bound_memory();
  void show_results();
  std::vector<std::pair<bool, bool>> used_and_missed() const;
  std::vector<std::int32_t> sum_of_users() const;
  void learn_order();
  void use_order(std::vector<std::size_t> observed);
  [[noreturn]] void throw_missing() const;

  comm::Group all_;
  GradientReducerOptions options_;
  std::vector<NamedTensor> in_buckets_;  ///< the parameters, if nothing is sharded; else empty
  BucketSizes sizes_;
  std::vector<std::vector<std::size_t>> assignment_;  ///< parameters per bucket
  std::function<void(std::size_t)> complete_;
  std::vector<Flat> flats_;
  std::vector<WholeGradient*> buckets_;       ///< flats_, if nothing is sharded; else empty
  std::vector<Place> places_;                 ///< by parameter
  std::vector<std::size_t> order_;            ///< order of reductions
  std::vector<std::size_t> ready_order_;      ///< parameters, in the order of their gradients in this backward
  std::vector<std::size_t> learnt_;           ///< parameters, in the order of their gradients in rank 0's first
                                              ///< backward
  std::vector<std::size_t> pending_of_unit_;  ///< by unit: gradients still missing in this backward
  std::size_t next_ = 0;                      ///< index in order_ of the next reduction to start
  std::deque<std::size_t> reducing_;          ///< flats_ with a reduction in flight, oldest first
  bool order_known_ = false;
  bool rebuild_ = false;  ///< the next backward begins with new buckets
  bool paused_ = false, touched_ = false;
  std::thread::id begun_by_, owner_;  ///< thread that called begin(), and thread whose backward touched the parameters
  std::string first_not_finite_;
};

}  // namespace tessera::parallel
