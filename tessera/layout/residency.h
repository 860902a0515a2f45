#pragma once
/// \file
/// Residency: which units hold their whole parameters, and what has to happen next. The sharding engine tells what it
/// sees (an operator reads unit 3, all gradients of unit 3 are there, backward begins) and gets a list of actions
/// (gather, wait, release), which it executes. No tensors, no clocks, no threads: the actions are a function of the
/// events alone, so ranks that compute the same thing start the same gathers in the same order.
///
/// One unit's life:   absent --gather--> gathering --wait--> present --release--> absent
///
/// The rules, with their reasons:
/// - There are no module hooks in LibTorch, so a unit's forward ends when another unit is *newly* touched (touched for
///   the first time since it was gathered). A touch of a unit that is in use already releases nothing. A wrong guess
///   costs one more gather, never a wrong result.
/// - A unit's backward ends when all its gradients are there. Units that expect none (frozen, or done) end as in
///   forward. What is left at the end of backward is released then.
/// - The order seen in one pass predicts the next one; the first backward is predicted as the reverse of its forward.
///   A prediction that fails turns prefetch off until the order is recognised again.

#include <tessera/base/words.h>
#include <cstddef>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::layout {

/// How a unit behaves; see StrategyRow (layout/strategy.h) for which row wants what.
struct UnitPolicy {
  bool release_after_forward = true;   ///< reshard_after_forward; the root unit usually keeps its parameters
  bool release_after_backward = true;  ///< false: whole between steps too (ZeRO-1/2); see Residency::release_all()
  /// In backward, too, released as soon as another unit is newly touched, even while gradients are expected: for units
  /// used at both ends of the model (embedding and head in the root unit).
  bool release_when_left = false;
  bool expects_gradients = true;  ///< has parameters that are trained
};

enum class BackwardPrefetch : unsigned char {
  pre,   ///< the next unit's gather starts before the present unit's gradients are computed
  post,  ///< ... when they are there
  none
};  ///< when backward gathers the next unit
/// FSDP's words: backward_pre, backward_post, no_prefetch.
const WordTable& words_of(BackwardPrefetch);

/// When units come and go.
struct ResidencyOptions {
  bool forward_prefetch = true;                                ///< the next unit is gathered while one computes
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;  ///< the same in backward
  /// Units that may be gathered ahead of their use (limit_all_gathers: 1; without the limit: more).
  int prefetch_depth = 1;
};

/// What is to be done with a unit now.
struct ResidencyAction {
  enum class Kind {
    gather,  ///< start the all-gather
    wait,    ///< block until it is complete
    release  ///< drop the whole parameters
  };  ///< the edges of a unit's life, see above
  Kind kind;         ///< what is to be done
  std::size_t unit;  ///< its number in the list that the constructor was given
  friend bool operator==(const ResidencyAction&, const ResidencyAction&) = default;
};

/// The state machine of the units: which are present, which are to be gathered or dropped. No tensors.
class Residency {
 public:
  /// Where a unit's whole parameters are.
  enum class State { absent, gathering, present };
  /// In the order in which they are to be done.
  using Actions = std::vector<ResidencyAction>;

  /// All units are absent.
  Residency(std::vector<UnitPolicy> units, const ResidencyOptions& options);

  /// An operator is about to read parameters of `units` (ascending, each once): afterwards all of them are present, and
  /// pinned until unpin(). Actions come in the order in which they are to be executed.
  Actions touch(std::span<const std::size_t> units);
  /// The operator is done. A release that was due meanwhile comes now.
  Actions unpin(std::span<const std::size_t> units);

  /// True when touch(units) would give no action and change nothing but pins: the engine's fast path.
  bool in_use(std::span<const std::size_t> units) const;

  /// Other ranks need this unit now, so that all of them gather it: it waits here for its use, until one is
  /// mispredicted or the pass ends. Nothing when it is not absent.
  Actions admit(std::size_t unit);

  Actions backward_begin();  ///< the outermost backward begins, and so the forward has ended
  /// All gradients that the unit expects in this backward are there.
  Actions gradients_complete(std::size_t unit);
  /// Also after a failed backward.
  Actions backward_end();

  /// Releases everything, pinned units when their last pin goes. For the end of a scope, and when the shards changed
  /// (an optimizer step): whole parameters that are there are out of date, and the next touch gathers them.
  Actions release_all();

  State state(std::size_t unit) const { return units_[unit].state; }  ///< whether its whole parameters are there
  int pins(std::size_t unit) const { return units_[unit].pins; }      ///< operators that use it now
  bool in_backward() const { return backward_; }                      ///< between backward_begin() and backward_end()
  /// The order of newly touched units in the last complete pass.
  const std::vector<std::size_t>& forward_order() const { return forward_.order; }

 private:
  struct Unit {
    UnitPolicy policy;
    State state = State::absent;
    int pins = 0;
    bool touched = false;      ///< in this pass, since it was gathered
    bool ahead = false;        ///< gathered before it was asked for
    bool complete = false;     ///< in this backward: its gradients are there
    bool release_due = false;  ///< when the last pin goes
  };
  /// What one kind of pass has seen, and expects.
  struct Pass {
    std::vector<std::size_t> order;  ///< units of the last complete pass
    std::vector<std::size_t> seen;   ///< units of the present one
    std::size_t next = 0;            ///< place in `order` that is expected now
    bool known = false;              ///< order[next] is believed
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
