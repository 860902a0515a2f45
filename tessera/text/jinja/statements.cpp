#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/text/jinja/evaluator.h>
#include <tessera/text/jinja/globals.h>
#include <tessera/text/jinja/loop.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>

namespace tessera::text::jinja {
namespace {

/// A macro remembers the scope of its definition; its variables are looked up when it runs.
class Macro : public Callable {
 public:
  Macro(Evaluator& evaluator, const MacroDefinition& definition, ScopePtr around)
      : evaluator_(evaluator), definition_(definition), around_(std::move(around)) {}

  const char* type() const override { return "Macro"; }
  Value call(Machine& /*machine*/, const Given& given) override {
    return evaluator_.call_macro(definition_, around_, given);
  }

 private:
  Evaluator& evaluator_;
  const MacroDefinition& definition_;
  ScopePtr around_;
};

}  // namespace

/// Installs another scope for its lifetime.
class Evaluator::InScope {
 public:
  InScope(Evaluator& evaluator, ScopePtr parent)
      : evaluator_(evaluator), before_(std::exchange(evaluator.scope_, nullptr)) {
    evaluator.machine_.charge(sizeof(Scope));
    evaluator.scope_ = std::make_shared<Scope>();
    evaluator.scope_->parent = std::move(parent);
  }
  explicit InScope(Evaluator& evaluator) : InScope(evaluator, evaluator.scope_) {}
  ~InScope() { evaluator_.scope_ = std::move(before_); }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Evaluator& evaluator_;
  ScopePtr before_;
};

/// Redirects printed text for its lifetime.
class Evaluator::Capture {
 public:
  Capture(Evaluator& evaluator, std::string& text) : evaluator_(evaluator), before_(evaluator.out_) {
    evaluator.out_ = &text;
    ++evaluator.captures_;
  }
  ~Capture() {
    evaluator_.out_ = before_;
    --evaluator_.captures_;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  Evaluator& evaluator_;
  std::string* before_;
};

Evaluator::Evaluator(const Source& source, const Variables& variables, const Limits& limits, std::time_t now)
    : source_(source), machine_(limits), scope_(std::make_shared<Scope>()) {
  scope_->variables = make_globals(machine_, now);
  scope_ = std::make_shared<Scope>(Scope{scope_, variables});
}

Rendered Evaluator::render(const Block& block) {
  out_ = &rendered_.text;
  run(block);
  return std::move(rendered_);
}

Evaluator::Flow Evaluator::run(const Block& block) {
  for (const Statement& statement : block)
    if (const Flow flow = run(statement); flow != Flow::on) return flow;
  return Flow::on;
}

Evaluator::Flow Evaluator::run(const Statement& statement) {
  try {
    const Machine::Level level(machine_);
    machine_.step();
    return std::visit([this](const auto& node) { return run(node); }, statement.node);
  } catch (const Fault& fault) {
    fail_at(statement.offset, fault);
  }
}

void Evaluator::print(std::string_view text) {
  machine_.charge(text.size());
  *out_ += text;
}

Evaluator::Flow Evaluator::run(const Text& node) {
  print(node.text);
  return Flow::on;
}

Evaluator::Flow Evaluator::run(const Print& node) {
  append_str(machine_, *out_, evaluate(*node.value));
  return Flow::on;
}

void Evaluator::assign(const Target& target, Value value) {
  if (target.tuple) {
    const Values items = items_of(machine_, value);
    if (items.size() != target.parts.size())
      fail(target.parts.size(), " names cannot be assigned ", items.size(), " values");
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    machine_.charge(sizeof(Value));
    return scope_->set(target.name, std::move(value));
  }
  const Value* object = scope_->find(target.name);
  auto* space = object == nullptr ? nullptr : object->as<Namespace>();
  if (space == nullptr)
    fail("'", target.name, ".", target.attribute, "' is assigned to, but '", target.name, "' is not a namespace");
  space->set(machine_, target.attribute, std::move(value));
}

Evaluator::Flow Evaluator::run(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::on;
}

Value Evaluator::captured(const Block& block) {
  std::string text;
  {
    const Capture capture(*this, text);
    run(block);
  }
  return Value::of(std::move(text));  // the text was charged when it was printed
}

Value Evaluator::filtered(const Expression& filter, Value text) {
  const Value* before = std::exchange(block_text_, &text);
  Value result = evaluate(filter);
  block_text_ = before;
  return result;
}

Evaluator::Flow Evaluator::run(const SetBlock& node) {
  Value text;
  {
    const InScope scope(*this);
    text = captured(node.body);
  }
  if (node.filter) text = filtered(*node.filter, std::move(text));
  assign(node.target, std::move(text));
  return Flow::on;
}

Evaluator::Flow Evaluator::run(const FilterBlock& node) {
  const InScope scope(*this);
  append_str(machine_, *out_, filtered(*node.filter, captured(node.body)));
  return Flow::on;
}

Evaluator::Flow Evaluator::run(const If& node) {
  for (const auto& [condition, body] : node.branches)
    if (truth(evaluate(*condition))) return run(body);
  return run(node.otherwise);
}

Evaluator::Flow Evaluator::run(const For& node) {
  Values items = items_of(machine_, evaluate(*node.list));
  Loop::Keeps keeps;
  if (node.condition)
    keeps = [this, &node, around = scope_](const Value& item) {
      const InScope scope(*this, around);
      scope_->set("loop", Value::undefined("'loop' is undefined in the condition of a loop"));
      assign(node.target, item);
      return truth(evaluate(*node.condition));
    };
  auto& loop = machine_.make<Loop>(std::move(items), std::move(keeps));
  bool completed = false;  // as in Jinja, an iteration ended by break or continue does not count
  while (const Value* item = loop.advance()) {
    machine_.step();
    const InScope scope(*this);
    scope_->set("loop", Value::of(loop));
    assign(node.target, *item);
    const Flow flow = run(node.body);
    if (flow == Flow::leave_loop) break;
    completed |= flow == Flow::on;
  }
  loop.end();
  if (completed) return Flow::on;
  const InScope scope(*this);
  return run(node.otherwise);
}

Evaluator::Flow Evaluator::run(const With& node) {
  Values values;
  for (const auto& [target, value] : node.values) values.push_back(evaluate(*value));
  const InScope scope(*this);
  for (std::size_t i = 0; i < values.size(); ++i) assign(node.values[i].first, values[i]);
  return run(node.body);
}

Evaluator::Flow Evaluator::run(const Generation& node) {
  const InScope scope(*this);
  const std::size_t begin = out_->size();
  run(node.body);
  if (captures_ > 0)
    rendered_.generation_lost = true;
  else
    rendered_.generated.push_back({begin, out_->size()});
  return Flow::on;
}

Value Evaluator::macro_value(const MacroDefinition& definition) {
  return Value::of(machine_.make<Macro>(*this, definition, scope_));
}

Evaluator::Flow Evaluator::run(const MacroDefinition& node) {
  scope_->set(node.name, macro_value(node));
  return Flow::on;
}

Evaluator::Flow Evaluator::run(const CallBlock& node) {
  const Value caller = macro_value(node.caller);
  append_str(machine_, *out_, call(std::get<Call>(node.call->node), &caller));
  return Flow::on;
}

void Evaluator::bind_parameters(const MacroDefinition& macro, const Given& given) {
  const auto& names = macro.parameters.names;
  Values more(given.plain.begin() + static_cast<std::ptrdiff_t>(std::min(given.plain.size(), names.size())),
              given.plain.end());
  if (!more.empty() && !macro.uses_more)
    fail("the macro '", macro.name, "' takes at most ", names.size(), " arguments, but ", given.plain.size(),
         " are given");
  Members more_named;
  std::vector<const Value*> values(names.size(), nullptr);
  for (std::size_t i = 0; i < std::min(names.size(), given.plain.size()); ++i) values[i] = &given.plain[i];
  const Value* caller = nullptr;
  for (const auto& [name, value] : given.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) {
      const Value*& place = values[static_cast<std::size_t>(found - names.begin())];
      if (place != nullptr) fail("the macro '", macro.name, "': the argument '", name, "' is given twice");
      place = &value;
    } else if (name == "caller" && macro.uses_caller) {
      caller = &value;
    } else if (macro.uses_more_named) {
      set_member(machine_, more_named, Value::of(name), value);
    } else {
      fail("the macro '", macro.name, "' has no parameter '", name, "'");
    }
  }
  const std::size_t first_default = names.size() - macro.parameters.defaults.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (values[i] != nullptr)
      scope_->set(names[i], *values[i]);
    else if (i >= first_default)
      scope_->set(names[i], evaluate(*macro.parameters.defaults[i - first_default]));
    else
      scope_->set(names[i], Value::undefined(concat("the parameter '", names[i], "' was not given")));
  }
  if (macro.uses_caller)
    scope_->set("caller", caller != nullptr
                              ? *caller
                              : Value::undefined("'caller' is undefined: the macro was not called by a call block"));
  if (macro.uses_more) scope_->set("varargs", machine_.list(std::move(more), Sequence::Kind::tuple));
  if (macro.uses_more_named) scope_->set("kwargs", machine_.dict(std::move(more_named)));
}

Value Evaluator::call_macro(const MacroDefinition& macro, const ScopePtr& around, const Given& given) {
  const Machine::Level level(machine_);
  const InScope scope(*this, around);
  bind_parameters(macro, given);
  return captured(macro.body);
}

}  // namespace tessera::text::jinja
