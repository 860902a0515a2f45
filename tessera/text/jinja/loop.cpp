#include <tessera/text/jinja/loop.h>

#include <tessera/text/jinja/operators.h>

namespace tessera::text::jinja {
namespace {

class LoopMethod : public Callable {
 public:
  LoopMethod(Loop& loop, bool cycles) : loop_(loop), cycles_(cycles) {}
  Value call(Machine& machine, const Given& given) override {
    return cycles_ ? loop_.cycle(given) : loop_.changed(machine, given);
  }

 private:
  Loop& loop_;
  bool cycles_;
};

Value or_undefined(const Value* value, const char* why) { return value != nullptr ? *value : Value::undefined(why); }

}  // namespace

const Value* Loop::peek() {
  while (!next_ && looked_at_ < items_.size()) {
    const Value& item = items_[looked_at_++];
    if (!keeps_ || keeps_(item)) next_ = item;
  }
  return next_ ? &*next_ : nullptr;
}

const Value* Loop::advance() {
  if (peek() == nullptr) return nullptr;
  previous_ = std::move(current_);
  current_ = std::move(next_);
  next_.reset();
  ++index_;
  return &*current_;
}

void Loop::end() {
  items_.clear();
  looked_at_ = 0;
  keeps_ = nullptr;
}

std::int64_t Loop::length() {
  Values kept;
  if (next_) kept.push_back(*next_);
  for (; looked_at_ < items_.size(); ++looked_at_)
    if (!keeps_ || keeps_(items_[looked_at_])) kept.push_back(items_[looked_at_]);
  const auto count = index_ + 1 + static_cast<std::int64_t>(kept.size());
  items_ = std::move(kept);
  keeps_ = nullptr;
  next_.reset();
  looked_at_ = 0;
  return count;
}

std::optional<Value> Loop::attribute(Machine& machine, std::string_view name) {
  machine.step();
  if (name == "index") return Value::of(index_ + 1);
  if (name == "index0") return Value::of(index_);
  if (name == "first") return Value::of(index_ == 0);
  if (name == "last") return Value::of(peek() == nullptr);
  if (name == "length") return Value::of(length());
  if (name == "revindex") return Value::of(length() - index_);
  if (name == "revindex0") return Value::of(length() - index_ - 1);
  if (name == "previtem") return or_undefined(previous_ ? &*previous_ : nullptr, "the first item has no predecessor");
  if (name == "nextitem") return or_undefined(peek(), "the last item has no successor");
  if (name == "depth") return Value::of(1);
  if (name == "depth0") return Value::of(0);
  if (name == "cycle") return Value::of(machine.make<LoopMethod>(*this, true));
  if (name == "changed") return Value::of(machine.make<LoopMethod>(*this, false));
  return std::nullopt;
}

Value Loop::cycle(const Given& given) const {
  if (given.plain.empty()) fail("loop.cycle needs at least one value");
  return given.plain[static_cast<std::size_t>(index_) % given.plain.size()];
}

Value Loop::changed(Machine& machine, const Given& given) {
  bool same = last_changed_ && last_changed_->size() == given.plain.size();
  for (std::size_t i = 0; same && i < given.plain.size(); ++i)
    same = equal(machine, (*last_changed_)[i], given.plain[i]);
  last_changed_ = given.plain;
  return Value::of(!same);
}

}  // namespace tessera::text::jinja
