#pragma once
/// \file
/// A for-loop at work, which the template sees as `loop`.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/text/jinja/objects.h>

namespace tessera::text::jinja {

/// Goes through the items that `keeps` keeps. An item is looked at when it is needed, one ahead only where the template
/// asks for loop.last or loop.nextitem: `keeps` may depend on what the body has done.
class Loop : public Object, public Attributes {
 public:
  using Keeps = std::function<bool(const Value&)>;

  Loop(Values items, Keeps keeps) : items_(std::move(items)), keeps_(std::move(keeps)) {}

  /// The next item, which is then the current one; nullptr at the end.
  const Value* advance();
  /// Lets go of the items, when the loop is left.
  void end();

  const char* type() const override { return "LoopContext"; }
  /// Throws Fault for recursion, which is not supported.
  std::optional<Value> attribute(Machine& machine, std::string_view name) override;

  /// loop.cycle(a, b): one after another.
  Value cycle(const Given& given) const;
  /// loop.changed(a): whether it differs from the last call's.
  Value changed(Machine& machine, const Given& given);

 private:
  const Value* peek();
  std::int64_t length();

  Values items_;
  Keeps keeps_;
  std::size_t looked_at_ = 0;  ///< items that were taken, or left out
  std::int64_t index_ = -1;    ///< the current item's among those kept
  std::optional<Value> previous_, current_, next_;
  std::optional<Values> last_changed_;
};

}  // namespace tessera::text::jinja
