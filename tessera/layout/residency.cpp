#include <tessera/layout/residency.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <utility>

namespace tessera::layout {
namespace {

constexpr std::size_t longest_pass = 1 << 16;  // an endless loop of evaluations counts as one pass

using Kind = ResidencyAction::Kind;

}  // namespace

const WordTable& words_of(BackwardPrefetch) {
  static const WordTable words = {{"backward_pre", "backward_post", "no_prefetch"},
                                  {{"1", "backward_pre"}, {"2", "backward_post"}}};
  return words;
}

Residency::Residency(std::vector<UnitPolicy> units, const ResidencyOptions& options) : options_(options) {
  for (const UnitPolicy& policy : units) units_.push_back({.policy = policy});
}

void Residency::start_gather(std::size_t unit, Actions& actions) {
  units_[unit].state = State::gathering;
  actions.push_back({Kind::gather, unit});
}

/// Releases a unit that is gathering or present; if it is pinned, the release is deferred.
void Residency::release(std::size_t unit, Actions& actions) {
  Unit& u = units_[unit];
  if (u.pins > 0) {
    u.release_due = true;
    return;
  }
  if (u.state == State::gathering) actions.push_back({Kind::wait, unit});  // a started collective must end
  actions.push_back({Kind::release, unit});
  u.state = State::absent;
  u.touched = u.ahead = u.release_due = false;
}

bool Residency::in_use(std::span<const std::size_t> units) const {
  return std::all_of(units.begin(), units.end(),
                     [&](std::size_t u) { return units_[u].state == State::present && units_[u].touched; });
}

/// Whether the unit is finished for this pass once another unit is used.
bool Residency::may_leave(const Unit& u) const {
  if (u.state != State::present || !u.touched || u.pins > 0) return false;
  if (!backward_) return u.policy.release_after_forward;
  return u.policy.release_after_backward && (u.policy.release_when_left || !u.policy.expects_gradients || u.complete);
}

Residency::Actions Residency::touch(std::span<const std::size_t> units) {
  Actions actions;
  const auto asked = [&](std::size_t u) { return std::find(units.begin(), units.end(), u) != units.end(); };
  const bool newly = std::any_of(units.begin(), units.end(), [&](std::size_t u) { return !units_[u].touched; });
  if (newly) {
    bool mispredicted = false;
    for (const std::size_t u : units)
      if (!units_[u].touched) mispredicted = !see(u) || mispredicted;
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (!asked(u) && (may_leave(units_[u]) || (mispredicted && units_[u].ahead))) release(u, actions);
    for (const std::size_t u : units)
      if (units_[u].state == State::absent) start_gather(u, actions);
    for (const std::size_t u : units) units_[u].touched = true;
    if (!backward_ ? options_.forward_prefetch : options_.backward_prefetch == BackwardPrefetch::pre) prefetch(actions);
  }
  for (const std::size_t u : units) {
    if (units_[u].state == State::gathering) {
      actions.push_back({Kind::wait, u});
      units_[u].state = State::present;
    }
    units_[u].ahead = false;
    ++units_[u].pins;
  }
  return actions;
}

Residency::Actions Residency::admit(std::size_t unit) {
  Actions actions;
  Unit& u = units_[unit];
  if (u.state != State::absent) return actions;
  start_gather(unit, actions);
  actions.push_back({Kind::wait, unit});
  u.state = State::present;
  u.ahead = true;
  return actions;
}

Residency::Actions Residency::unpin(std::span<const std::size_t> units) {
  Actions actions;
  for (const std::size_t u : units) {
    TESSERA_CHECK(units_[u].pins > 0, "unit ", u, " is not pinned");
    if (--units_[u].pins == 0 && units_[u].release_due) release(u, actions);
  }
  return actions;
}

/// Records that `unit` is newly touched. Returns false if another unit was expected.
bool Residency::see(std::size_t unit) {
  Pass& p = pass();
  // Forward passes without a backward in between are recognized by a repetition of the first units.
  const bool again = !backward_ && p.order.empty() && p.seen.size() > 1 && (p.seen[0] == unit || p.seen[1] == unit);
  if (again || p.seen.size() >= longest_pass) end_pass(p);
  if (!backward_ && !p.order.empty() && p.next == p.order.size() && p.seen.size() >= p.order.size()) p.seen.clear();
  p.seen.push_back(unit);
  if (p.order.empty()) return true;
  const bool expected_one = p.known && p.next < p.order.size();
  if (expected_one && p.order[p.next] == unit) {
    ++p.next;
    return true;
  }
  auto place = std::find(p.order.begin() + static_cast<std::ptrdiff_t>(p.next), p.order.end(), unit);
  if (place == p.order.end()) place = std::find(p.order.begin(), p.order.end(), unit);
  p.known = place != p.order.end();
  if (p.known) p.next = static_cast<std::size_t>(place - p.order.begin()) + 1;
  return !expected_one;
}

void Residency::prefetch(Actions& actions) {
  const Pass& p = pass();
  if (!p.known) return;
  const auto end = std::min(p.order.size(), p.next + static_cast<std::size_t>(std::max(0, options_.prefetch_depth)));
  for (std::size_t i = p.next; i < end; ++i) {
    Unit& u = units_[p.order[i]];
    if (u.state != State::absent) continue;
    u.ahead = true;
    start_gather(p.order[i], actions);
  }
}

void Residency::end_pass(Pass& p) {
  if (!p.seen.empty()) p.order = std::exchange(p.seen, {});
  p.next = 0;
  p.known = !p.order.empty();
}

Residency::Actions Residency::backward_begin() {
  Actions actions;
  end_pass(forward_);
  backward_ = true;
  if (backward_pass_.order.empty()) {  // the best guess
    backward_pass_.order.assign(forward_.order.rbegin(), forward_.order.rend());
    end_pass(backward_pass_);
  }
  for (std::size_t u = 0; u < units_.size(); ++u) {
    units_[u].complete = false;
    if (units_[u].pins == 0) units_[u].touched = false;  // its next touch is the first of this pass
  }
  return actions;
}

Residency::Actions Residency::gradients_complete(std::size_t unit) {
  Actions actions;
  Unit& u = units_[unit];
  u.complete = true;
  if (u.policy.release_after_backward && u.state != State::absent) release(unit, actions);
  if (options_.backward_prefetch == BackwardPrefetch::post) prefetch(actions);
  return actions;
}

Residency::Actions Residency::backward_end() {
  Actions actions;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].policy.release_after_backward && units_[u].state != State::absent) release(u, actions);
    units_[u].complete = false;
    if (units_[u].pins == 0) units_[u].touched = false;
  }
  end_pass(backward_pass_);
  end_pass(forward_);
  backward_ = false;
  return actions;
}

Residency::Actions Residency::release_all() {
  Actions actions;
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (units_[u].state != State::absent) release(u, actions);
  return actions;
}

}  // namespace tessera::layout
