#pragma once
/// \file
/// Renders a template once: evaluates its tree with the run's variables.

#include <ctime>
#include <string>
#include <vector>

#include <tessera/text/jinja/objects.h>
#include <tessera/text/jinja/parser.h>
#include <tessera/text/jinja/scope.h>
#include <tessera/text/jinja/template.h>

namespace tessera::text::jinja {

/// Not thread-safe; used for a single render().
class Evaluator {
 public:
  Evaluator(const Source& source, const Variables& variables, const Limits& limits, std::time_t now);

  Rendered render(const Block& block);

  /// Runs a macro's body with its arguments, in the scope in which the macro was defined.
  Value call_macro(const MacroDefinition& macro, const ScopePtr& around, const Given& given);

 private:
  enum class Flow { on, leave_loop, next_round };
  class InScope;
  class Capture;

  // Expressions (evaluate.cpp). A Fault becomes an InputError that names the innermost expression's place.
  Value evaluate(const Expression& expression);
  Value value_of(const Constant& node) { return node.value; }
  Value value_of(const Name& node);
  Value value_of(const ListDisplay& node);
  Value value_of(const DictDisplay& node);
  Value value_of(const Attribute& node);
  Value value_of(const Subscript& node);
  Value value_of(const SliceSubscript& node);
  Value value_of(const Call& node) { return call(node, nullptr); }
  Value value_of(const Filter& node);
  Value value_of(const Test& node);
  Value value_of(const Unary& node);
  Value value_of(const Binary& node);
  Value value_of(const Concatenation& node);
  Value value_of(const Comparison& node);
  Value value_of(const Conditional& node);
  /// caller: the macro that a call block passes in addition to the arguments, or nullptr.
  Value call(const Call& node, const Value* caller);
  Given given(const Arguments& arguments);

  // Statements (statements.cpp).
  Flow run(const Block& block);
  Flow run(const Statement& statement);
  Flow run(const Text& node);
  Flow run(const Print& node);
  Flow run(const Set& node);
  Flow run(const SetBlock& node);
  Flow run(const If& node);
  Flow run(const For& node);
  Flow run(const MacroDefinition& node);
  Flow run(const CallBlock& node);
  Flow run(const FilterBlock& node);
  Flow run(const With& node);
  Flow run(const Generation& node);
  Flow run(const LoopControl& node) { return node.leave ? Flow::leave_loop : Flow::next_round; }

  void assign(const Target& target, Value value);
  Value macro_value(const MacroDefinition& definition);
  void bind_parameters(const MacroDefinition& macro, const Given& given);
  /// Returns the printed output of a block.
  Value captured(const Block& block);
  Value filtered(const Expression& filter, Value text);
  void print(std::string_view text);
  [[noreturn]] void fail_at(std::size_t offset, const Fault& fault) const;

  const Source& source_;
  Machine machine_;
  ScopePtr scope_;
  std::string* out_ = nullptr;
  int captures_ = 0;                   ///< > 0: output is being captured and is not part of the template's output
  const Value* block_text_ = nullptr;  ///< the input of the current filter block's filters
  Rendered rendered_;
};

}  // namespace tessera::text::jinja
