#pragma once
/// \file
/// The gradient reducer of every strategy: flat gradients fill while backward runs and are reduced as soon as they are
/// full, in one order on every rank. It decides when; flat_gradient.h has the memory, gradient_reduction.h the
/// collectives.

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
  bool wait_at_once = false;         ///< no overlap with backward
  bool reduce_at_end = false;        ///< all reductions when backward ends, of unused parameters, too
  bool check_finite = true;          ///< remember the first gradient that is not finite
  comm::Group expert_replicas = {};  ///< GradientGroups::expert_replicas of the non-expert gradients; empty: none
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};  ///< GradientGroups::per_source of the experts' gradients
  std::function<void(const at::Tensor& flat)> before = {};  ///< is given each flat gradient before its reduction
};

/// The life of one flat gradient in a backward:
///
///   waiting --first gradient--> filling --all there--> full --its turn--> reducing --> reduced
///
/// - Reductions start strictly in one order, so ranks agree: at first the order of the list, later the order in which
///   rank 0's gradients became ready. Of those that take memory from a pool, at most two are alive beside the one that
///   fills: the oldest reduction is waited for.
/// - The end of backward starts those that lack gradients (with zeros in their place), waits for all, and shows the
///   results. Parameters that no rank used keep their grad(): undefined if it was.
/// - Paused backwards accumulate locally and reduce nothing.
/// - Fixed order (docs/strategies.md): every backward is a micro-batch, V = logical_shards of them make a step over all
///   ranks, and micro-batch i = k * ranks + rank is the k-th backward of a rank: whatever the number of ranks, the sum
///   is (((g_0 + g_1) + g_2) + ...), bit for bit. With expert replicas: ShardingOptions::SharedByExperts.
///
/// A backward that gives no parameter a gradient reduces nothing (unless reduce_at_end). A failed one drops all
/// gradients. One backward at a time; another model's may run in another thread when the parameters are on
/// the CPU. The caller serialises all calls (the engine's mutex).
class GradientReducer {
 public:
  /// Flat gradients in the order of their first reduction; what they refer to outlives this. `complete(unit)` is called
  /// when the last gradient of a unit is there. Throws InputError.
  GradientReducer(comm::Group all, std::vector<std::unique_ptr<FlatGradient>> flats, GradientReducerOptions options,
                  std::function<void(std::size_t unit)> complete);
  /// Buckets of whole gradients: at first in the reverse order of `parameters` (trainable leaves on all.device(), the
  /// same on every rank), after the first reduction laid out anew in the order in which rank 0's became ready.
  GradientReducer(comm::Group all, std::vector<NamedTensor> parameters, BucketSizes sizes,
                  GradientReducerOptions options);

  /// Every parameter, by index: on_gradient(index) is to be called when autograd has accumulated into it.
  std::vector<at::Tensor> parameters() const;

  /// A backward begins. `paused`: it accumulates locally, and end() reduces nothing.
  void begin(bool paused);
  void on_gradient(std::size_t index);
  /// A backward ends: reduces remaining gradients and shows the results. Collective. True when gradients were reduced.
  bool end();
  /// Reduces and shows the gradients of paused backwards. Between backwards; collective.
  void reduce();
  /// The backward failed: forgets its gradients, and all earlier ones.
  void fail() noexcept;
  /// Whether a backward is running that has given one of these parameters a gradient.
  bool touched() const { return touched_; }
  /// Whether the backward that ends in this thread is that one, or none is.
  bool ends_here() const { return !touched_ || std::this_thread::get_id() == owner_; }
  void zero_grad();
  /// Multiplies gradients of paused backwards that grad() does not show. Between backwards.
  void scale_unreduced(double factor);
  /// Names of the parameters that are reduced together, in the order of the reductions.
  std::vector<std::vector<std::string>> buckets() const;
  /// The order that was learnt, as indices of parameters(); empty: none yet.
  const std::vector<std::size_t>& learnt_order() const { return learnt_; }
  /// Begins with an order that was learnt before (a checkpoint's), the same on every rank: before the first backward.
  /// False, and nothing changes, for an order of other parameters.
  bool follow(const std::vector<std::size_t>& order);
  /// Bytes of gradient shards.
  std::int64_t shard_bytes() const;
  /// Name of the first parameter of this rank with a gradient that is not finite, since the last zero_grad().
  const std::string& first_not_finite() const { return first_not_finite_; }

 private:
  struct Flat {
    std::unique_ptr<FlatGradient> gradient;
    std::vector<bool> ready = {};  ///< by member: its gradient came in this backward
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
  std::vector<NamedTensor> in_buckets_;  ///< the parameters, where nothing is sharded; else empty
  BucketSizes sizes_;
  std::vector<std::vector<std::size_t>> assignment_;  ///< parameters per bucket
  std::function<void(std::size_t)> complete_;
  std::vector<Flat> flats_;
  std::vector<WholeGradient*> buckets_;       ///< flats_, where nothing is sharded; else empty
  std::vector<Place> places_;                 ///< by parameter
  std::vector<std::size_t> order_;            ///< order of reductions
  std::vector<std::size_t> ready_order_;      ///< parameters, as their gradients came in this backward
  std::vector<std::size_t> learnt_;           ///< parameters, as their gradients came in rank 0's first backward
  std::vector<std::size_t> pending_of_unit_;  ///< by unit: gradients that did not come yet in this backward
  std::size_t next_ = 0;                      ///< in order_: the one to start next
  std::deque<std::size_t> reducing_;          ///< flats_ whose reduction is under way, oldest first
  bool order_known_ = false;
  bool rebuild_ = false;  ///< the next backward begins with new buckets
  bool paused_ = false, touched_ = false;
  std::thread::id begun_by_, owner_;  ///< threads: that of begin(), and that whose backward touched
  std::string first_not_finite_;
};

}  // namespace tessera::parallel
