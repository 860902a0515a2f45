#include <tessera/base/error.h>
#include <tessera/text/jinja/evaluator.h>
#include <tessera/text/jinja/filters.h>
#include <tessera/text/jinja/methods.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>

namespace tessera::text::jinja {

void Evaluator::fail_at(std::size_t offset, const Fault& fault) const {
  throw InputError(concat(source_.place(offset), ": ", fault.what));
}

Value Evaluator::evaluate(const Expression& expression) {
  try {
    const Machine::Level level(machine_);
    machine_.step();
    return std::visit([this](const auto& node) { return value_of(node); }, expression.node);
  } catch (const Fault& fault) {
    fail_at(expression.offset, fault);
  }
}

Value Evaluator::value_of(const Name& node) {
  if (const Value* value = scope_->find(node.name)) return *value;
  return Value::undefined(concat("'", node.name, "' is undefined"));
}

Value Evaluator::value_of(const ListDisplay& node) {
  Values items;
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item));
  return machine_.list(std::move(items), node.tuple ? Sequence::Kind::tuple : Sequence::Kind::list);
}

Value Evaluator::value_of(const DictDisplay& node) {
  Members members;
  for (const auto& [key, value] : node.members) {
    Value name = evaluate(*key);
    set_member(machine_, members, std::move(name), evaluate(*value));
  }
  return machine_.dict(std::move(members));
}

Value Evaluator::value_of(const Attribute& node) { return attribute_of(machine_, evaluate(*node.object), node.name); }

Value Evaluator::value_of(const Subscript& node) {
  const Value object = evaluate(*node.object);
  return item_of(machine_, object, evaluate(*node.index));
}

Value Evaluator::value_of(const SliceSubscript& node) {
  const Value object = evaluate(*node.object);
  const auto bound = [&](const ExpressionPtr& expression) {
    return expression ? evaluate(*expression) : Value::none();
  };
  const Value first = bound(node.first), last = bound(node.last), step = bound(node.step);
  return slice_of(machine_, object, &first, &last, &step);
}

Given Evaluator::given(const Arguments& arguments) {
  Given result;
  for (const ExpressionPtr& value : arguments.plain) result.plain.push_back(evaluate(*value));
  for (const auto& [name, value] : arguments.named) result.named.emplace_back(name, evaluate(*value));
  if (arguments.more)
    for (Value& value : items_of(machine_, evaluate(*arguments.more))) result.plain.push_back(std::move(value));
  if (!arguments.more_named) return result;
  const Value named = evaluate(*arguments.more_named);
  if (!named.is_dict()) fail("the value after ** is a ", type_name(named), ", must be a dict");
  for (const auto& [name, value] : named.dict().members) {
    if (!name.is_string()) fail("argument names must be strings");
    result.named.emplace_back(name.string(), value);
  }
  return result;
}

Value Evaluator::call(const Call& node, const Value* caller) {
  const auto arguments = [&] {
    Given all = given(node.arguments);
    if (caller != nullptr) all.named.emplace_back("caller", *caller);
    return all;
  };
  // A method that is called immediately needs no bound-method object.
  if (const auto* attribute = std::get_if<Attribute>(&node.callee->node)) {
    const Value object = evaluate(*attribute->object);
    if (method_kind(object, attribute->name) == MethodKind::method)
      return call_method(machine_, object, attribute->name, arguments());
    const Value callee = attribute_of(machine_, object, attribute->name);
    if (callee.is_undefined()) {
      const auto near = nearest_method(object, attribute->name);
      fail(callee.why(), near ? concat(" (near: '", *near, "')") : "");
    }
    if (auto* callable = callee.as<Callable>()) return callable->call(machine_, arguments());
    fail("'", attribute->name, "' is a ", type_name(callee), ", which cannot be called");
  }
  const Value callee = evaluate(*node.callee);
  if (callee.is_undefined()) fail(callee.why());
  auto* callable = callee.as<Callable>();
  if (callable == nullptr) fail("a ", type_name(callee), " cannot be called");
  return callable->call(machine_, arguments());
}

Value Evaluator::value_of(const Filter& node) {
  const Value input = node.input ? evaluate(*node.input) : *block_text_;
  return apply_filter(machine_, node.name, input, given(node.arguments));
}

Value Evaluator::value_of(const Test& node) {
  const Value input = evaluate(*node.input);
  return Value::of(apply_test(machine_, node.name, input, given(node.arguments)));
}

Value Evaluator::value_of(const Unary& node) {
  const Value operand = evaluate(*node.operand);
  switch (node.op) {
    case Unary::Op::negate:
      return negate(operand);
    case Unary::Op::plus:
      return plus(operand);
    case Unary::Op::negation:
      break;
  }
  return Value::of(!truth(operand));
}

Value Evaluator::value_of(const Binary& node) {
  Value left = evaluate(*node.left);
  if (node.op == Binary::Op::both) return truth(left) ? evaluate(*node.right) : left;
  if (node.op == Binary::Op::either) return truth(left) ? left : evaluate(*node.right);
  return apply(machine_, node.op, left, evaluate(*node.right));
}

Value Evaluator::value_of(const Concatenation& node) {
  std::string out;
  for (const ExpressionPtr& part : node.parts) append_str(machine_, out, evaluate(*part));
  return machine_.text(std::move(out));
}

Value Evaluator::value_of(const Comparison& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, expression] : node.rest) {
    Value right = evaluate(*expression);
    if (!compare(machine_, op, left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Evaluator::value_of(const Conditional& node) {
  if (truth(evaluate(*node.condition))) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Value::undefined("the condition of an 'if' without 'else' is false");
}

}  // namespace tessera::text::jinja
