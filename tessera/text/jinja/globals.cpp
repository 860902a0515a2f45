#include <tessera/text/jinja/globals.h>

#include <array>

#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>

namespace tessera::text::jinja {
namespace {

constexpr std::int64_t longest_range = 100'000;  // the limit of Jinja's sandbox

using Function = Value (*)(Machine& machine, const Given& given);

class Plain : public Callable {
 public:
  explicit Plain(Function function) : function_(function) {}
  Value call(Machine& machine, const Given& given) override { return function_(machine, given); }

 private:
  Function function_;
};

class Clock : public Callable {
 public:
  explicit Clock(std::time_t now) : now_(now) {}
  Value call(Machine& machine, const Given& given) override {
    const Bound bound("strftime_now", given, {"format"}, 1);
    const std::string& format = bound.string_of(0);
    if (format.empty()) return Value::of("");
    if (format.size() > 200) fail("strftime_now: a format of more than 200 bytes is refused");
    std::tm local{};
    ::localtime_r(&now_, &local);
    std::array<char, 8192> text;
    return machine.text(std::string(text.data(), std::strftime(text.data(), text.size(), format.c_str(), &local)));
  }

 private:
  std::time_t now_;
};

/// joiner(", "): empty on the first call, the text on later ones.
class Joiner : public Callable {
 public:
  explicit Joiner(Value text) : text_(std::move(text)) {}
  Value call(Machine& /*machine*/, const Given& /*given*/) override {
    return std::exchange(used_, true) ? text_ : Value::of("");
  }

 private:
  Value text_;
  bool used_ = false;
};

Value make_joiner(Machine& machine, const Given& given) {
  const Bound bound("joiner", given, {"sep"});
  return Value::of(machine.make<Joiner>(bound[0] == nullptr ? Value::of(", ") : *bound[0]));
}

Value range(Machine& machine, const Given& given) {
  if (!given.named.empty()) fail("range takes no named arguments");
  const Bound bound("range", given, {"start", "stop", "step"}, 1);
  const bool one = bound[1] == nullptr;
  const std::int64_t start = one ? 0 : bound.integer_of(0, 0), stop = bound.integer_of(one ? 0 : 1, 0),
                     step = bound.integer_of(2, 1);
  if (step == 0) fail("range: the step is 0");
  Values items;
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<std::int64_t>(items.size()) == longest_range)
      fail("a range of more than ", longest_range, " numbers is refused");
    items.push_back(Value::of(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  machine.step(items.size() / 8);
  machine.charge(items.size(), sizeof(Value));
  Sequence made{Sequence::Kind::range, std::move(items), 1, 0, ""};
  made.shown = concat("range(", start, ", ", stop, step == 1 ? "" : concat(", ", step), ")");
  return Value::of(std::move(made));
}

Members members_of(Machine& machine, const char* function, const Given& given) {
  if (given.plain.size() > 1) fail(function, " takes one dict, or names with values");
  Members members;
  if (!given.plain.empty()) {
    const Value& first = given.plain[0];
    if (first.is_undefined()) fail(first.why());
    if (first.is_dict()) {
      members = first.dict().members;
    } else {
      for (const Value& item : items_of(machine, first)) {
        const Values pair = items_of(machine, item);
        if (pair.size() != 2) fail(function, " takes a dict or a list of pairs");
        set_member(machine, members, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : given.named) set_member(machine, members, Value::of(name), value);
  machine.charge(members.size(), 2 * sizeof(Value));
  return members;
}

Value make_dict(Machine& machine, const Given& given) { return machine.dict(members_of(machine, "dict", given)); }

Value make_namespace(Machine& machine, const Given& given) {
  auto& made = machine.make<Namespace>();
  for (auto& [name, value] : members_of(machine, "namespace", given)) {
    if (!name.is_string()) fail("the names of a namespace's attributes must be strings");
    made.set(machine, name.string(), value);
  }
  return Value::of(made);
}

Value raise_exception(Machine& machine, const Given& given) {
  const Bound bound("raise_exception", given, {"message"}, 1);
  fail("the template refuses: ", to_str(machine, *bound[0]));
}

}  // namespace

std::vector<std::pair<std::string, Value>> make_globals(Machine& machine, std::time_t now) {
  std::vector<std::pair<std::string, Value>> globals;
  constexpr std::pair<const char*, Function> functions[] = {{"range", range},
                                                            {"dict", make_dict},
                                                            {"namespace", make_namespace},
                                                            {"joiner", make_joiner},
                                                            {"raise_exception", raise_exception}};
  for (const auto& [name, function] : functions) globals.emplace_back(name, Value::of(machine.make<Plain>(function)));
  globals.emplace_back("strftime_now", Value::of(machine.make<Clock>(now)));
  return globals;
}

}  // namespace tessera::text::jinja
