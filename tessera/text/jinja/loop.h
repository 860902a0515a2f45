#pragma once
/// \file
/// A running for loop, visible to the template as `loop`.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/text/jinja/objects.h>

namespace tessera::text::jinja {

/// Iterates over the items for which `keeps` returns true. Items are tested lazily because `keeps` may depend on the
/// effects of the body; only if the template uses loop.last or loop.nextitem is one item tested ahead.
class Loop : public Object, public Attributes {
 public:
  using Keeps = std::function<bool(const Value&)>;

  Loop(Values items, Keeps keeps) : items_(std::move(items)), keeps_(std::move(keeps)) {}

  /// Advances to the next item and returns it; nullptr at the end.
  const Value* advance();
  /// Releases the items when the loop is left.
  void end();

  const char* type() const override { return "LoopContext"; }
  /// Throws Fault for recursion, which is not supported.
  std::optional<Value> attribute(Machine& machine, std::string_view name) override;

  /// loop.cycle(a, b): returns its arguments in turn.
  Value cycle(const Given& given) const;
  /// loop.changed(a): whether it differs from the previous call's argument.
  Value changed(Machine& machine, const Given& given);

 private:
  const Value* peek();
  std::int64_t length();

  Values items_;
  Keeps keeps_;
  std::size_t looked_at_ = 0;  ///< number of items taken or skipped
  std::int64_t index_ = -1;    ///< index of the current item among those kept
  std::optional<Value> previous_, current_, next_;
  std::optional<Values> last_changed_;
};

}  // namespace tessera::text::jinja
