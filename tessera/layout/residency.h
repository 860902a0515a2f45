#pragma once
/// \file
/// Residency: tracks which units have their whole parameters in memory, and decides what to do next. The sharding
/// engine reports events (an operator reads unit 3, all gradients of unit 3 are complete, backward begins) and receives
/// a list of actions (gather, wait, release) to execute. No tensors, clocks or threads: the actions depend on the
/// events alone, so ranks that compute the same thing start the same gathers in the same order.
///
/// A unit's life cycle:   absent --gather--> gathering --wait--> present --release--> absent
///
/// Rules and reasons:
/// - LibTorch has no module hooks, so a unit's forward ends when another unit is *newly* touched (for the first time
///   since it was gathered). Touching a unit that is already in use releases nothing. A wrong guess costs one more
///   gather, never a wrong result.
/// - A unit's backward ends when all its gradients are complete. The backward of units without expected gradients
///   (frozen, or complete) ends as in forward. Units that are still present at the end of backward are released then.
/// - The order of one pass predicts the next one; the first backward is predicted as the reverse of its forward. A
///   wrong prediction turns prefetch off until the order is recognised again.

#include <tessera/base/words.h>
#include <cstddef>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::layout {

/// A unit's behaviour; for the strategies' choices see StrategyRow (layout/strategy.h).
struct UnitPolicy {
  bool release_after_forward = true;   ///< reshard_after_forward; the root unit usually keeps its parameters
  bool release_after_backward = true;  ///< false: parameters stay whole between steps (ZeRO-1/2); see
                                       ///< Residency::release_all()
  /// In backward, release it as soon as another unit is newly touched, even while gradients are expected: for units
  /// used at both ends of the model (embedding and head in the root unit).
  bool release_when_left = false;
  bool expects_gradients = true;  ///< has trainable parameters
};

enum class BackwardPrefetch : unsigned char {
  pre,   ///< before the current unit's gradients are computed
  post,  ///< after they are complete
  none
};  ///< when backward gathers the next unit
/// FSDP's words: backward_pre, backward_post, no_prefetch.
const WordTable& words_of(BackwardPrefetch);

/// When units are gathered ahead.
struct ResidencyOptions {
  /// gather the next unit during the current unit's computation
  bool forward_prefetch = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;  ///< the same in backward
  /// Number of units that may be gathered ahead of their use (limit_all_gathers: 1; without the limit: more).
  int prefetch_depth = 1;
};

/// An action for one unit.
struct ResidencyAction {
  enum class Kind {
    gather,  ///< start the all-gather
    wait,    ///< block until it is complete
    release  ///< drop the whole parameters
  };  ///< transitions of a unit's state, see above
  Kind kind;         ///< what to do
  std::size_t unit;  ///< index in the constructor's list
  friend bool operator==(const ResidencyAction&, const ResidencyAction&) = default;
};

/// The state machine of all units. It does not use tensors.
class Residency {
 public:
  /// State of a unit's whole parameters.
  enum class State { absent, gathering, present };
  /// In execution order.
  using Actions = std::vector<ResidencyAction>;

  /// All units start absent.
  Residency(std::vector<UnitPolicy> units, const ResidencyOptions& options);

  /// An operator is about to read parameters of `units` (ascending, each once): after the returned actions all of them
  /// are present, and pinned until unpin(). Actions are in execution order.
  Actions touch(std::span<const std::size_t> units);
  /// Call when the operator has finished. Returns the releases that were deferred for it.
  Actions unpin(std::span<const std::size_t> units);

  /// True if touch(units) would return no action and change only pins: the engine's fast path.
  bool in_use(std::span<const std::size_t> units) const;

  /// Call when other ranks need this unit, so that all ranks gather it. It is kept until it is used, a prediction
  /// fails, or the pass ends. Returns no action unless it is absent.
  Actions admit(std::size_t unit);

  Actions backward_begin();  ///< the outermost backward begins, which ends the forward
  /// Call when all gradients that the unit expects in this backward are complete.
  Actions gradients_complete(std::size_t unit);
  /// Also called after a failed backward.
  Actions backward_end();

  /// Releases everything; pinned units once their last pin is removed. For the end of a scope, and after the shards
  /// changed (an optimizer step): whole parameters are then stale, and the next touch gathers them again.
  Actions release_all();

  State state(std::size_t unit) const { return units_[unit].state; }  ///< state of its whole parameters
  int pins(std::size_t unit) const { return units_[unit].pins; }      ///< operators currently using it
  bool in_backward() const { return backward_; }                      ///< between backward_begin() and backward_end()
  /// The order of newly touched units in the last complete pass.
  const std::vector<std::size_t>& forward_order() const { return forward_.order; }

 private:
  struct Unit {
    UnitPolicy policy;
    State state = State::absent;
    int pins = 0;
    bool touched = false;      ///< touched in this pass since it was gathered
    bool ahead = false;        ///< gathered ahead of its use
    bool complete = false;     ///< its gradients are complete in this backward
    bool release_due = false;  ///< release when the last pin is removed
  };
  /// Observed and expected order of one kind of pass.
  struct Pass {
    std::vector<std::size_t> order;  ///< units of the last complete pass
    std::vector<std::size_t> seen;   ///< units of the current pass
    std::size_t next = 0;            ///< expected position in `order`
    bool known = false;              ///< order[next] is trusted
  };

  void start_gather(std::size_t unit, Actions& actions);
  void release(std::size_t unit, Actions& actions);
  bool may_leave(const Unit& unit) const;
  bool see(std::size_t unit);
  void prefetch(Actions& actions);
  void end_pass(Pass& pass);
  Pass& pass() { return backward_ ? backward_pass_ : forward_; }

  std::vector<Unit> units_;
  ResidencyOptions options_;
  bool backward_ = false;
  Pass forward_, backward_pass_;
};

}  // namespace tessera::layout
