#pragma once
/// \file
/// Gradients on their way from autograd to the shards: each unit's gradients fill a flat buffer, which is reduced and
/// scattered as soon as it is full; the ranks' sums lie in shards. (Where nothing is sharded: Reducer,
/// parallel/sharding/reducer.h.)

#include <tessera/comm/group.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/compression/compression.h>
#include <tessera/parallel/sharding/flat_group.h>
#include <tessera/parallel/sharding/moved_gradients.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

struct ShardGradientsOptions {
  comm::Reduction reduction = comm::Reduction::mean;
  double predivide_factor = 1;
  std::int64_t logical_shards = 0;
  std::optional<at::ScalarType> reduce_dtype;
  bool find_unused_parameters = false;
  bool wait_at_once = false;             ///< no overlap
  bool reduce_at_end = false;            ///< all reductions when backward ends, in one order, whatever was used
  bool keep_whole_while_paused = false;  ///< ZeRO-1: paused backwards accumulate locally
  bool check_finite = true;
  std::shared_ptr<Compression> compression;
};

/// The life of one flat gradient in a backward:
///
///   empty --first gradient: buffer from the pool--> filling --all there--> full --its turn--> reducing --> added to
///   the shard
///
/// Reductions start in one order on all ranks: at first the reverse of the groups' order, later that in which rank 0's
/// gradients were complete. At most two flat gradients are alive beyond the one that fills: the oldest reduction is
/// waited for. The caller serialises all calls (the engine's mutex).
class ShardGradients {
 public:
  /// `groups`: the trained ones; they outlive this. `complete(unit)` is called when the last gradient of a unit is
  /// there.
  ShardGradients(ShardingContext& context, std::vector<FlatGroup*> groups, const ShardGradientsOptions& options,
                 std::function<void(std::size_t unit)> complete);

  void begin(bool paused);
  /// A gradient was accumulated into the module's parameter (group g, member m); it is taken away from there.
  void on_gradient(std::size_t g, std::size_t m);
  /// Reduces what is left and puts the results into the local parts' grad(). Collective.
  void end();
  /// Forgets this backward.
  void fail() noexcept;
  bool touched() const { return touched_; }
  void zero_grad();
  /// What paused backwards have left. Between backwards.
  void scale_unreduced(double factor);
  /// The groups in the order of their reductions.
  std::vector<const FlatGroup*> in_order() const;
  /// Bytes of gradient shards.
  std::int64_t shard_bytes() const;
  /// Name of the first parameter of this rank with a gradient that is not finite, since the last zero_grad().
  const std::string& first_not_finite() const { return first_not_finite_; }

 private:
  enum class State { empty, filling, full, reducing };
  struct Flat {
    FlatGroup* group = nullptr;
    State state = State::empty;
    at::Tensor buffer;                ///< [padded], reduce dtype
    std::vector<bool> ready, filled;  ///< in this backward; with contents (also of paused backwards)
    std::size_t pending = 0;
    at::Tensor sum;            ///< [padded / S]: reduced gradients
    std::vector<bool> in_sum;  ///< members whose part of `sum` counts
    at::Tensor result;         ///< [padded / S] of the reduction under way
    comm::Work work;
    bool across_started = false;
    std::vector<CompressedSegment> segments;
    std::unique_ptr<MovedGradients> moved;  ///< signs in the module's own parameters between backwards
  };

  at::ScalarType wire_dtype(const FlatGroup& group) const;
  void take_buffer(Flat& flat);
  void start_those_whose_turn_it_is(bool all);
  void start(Flat& flat);
  void start_fixed_order(Flat& flat);
  void start_across_copies(Flat& flat);
  void finish(Flat& flat);
  void bound_memory();
  void prepare_sum(Flat& flat);
  void share_usage();
  void learn_order();
  [[noreturn]] void throw_missing(const std::vector<std::vector<bool>>& used) const;
  bool fixed_order() const { return options_.logical_shards > 0; }

  ShardingContext& context_;
  ShardGradientsOptions options_;
  std::function<void(std::size_t)> complete_;
  std::vector<Flat> flats_;
  std::vector<std::size_t> order_;      ///< of reductions
  std::vector<std::size_t> completed_;  ///< in this backward
  std::vector<std::size_t> pending_of_unit_;
  std::size_t next_ = 0;
  std::deque<std::size_t> reducing_;
  bool order_known_ = false, touched_ = false, paused_ = false;
  std::string first_not_finite_;
};

}  // namespace tessera::parallel
