#pragma once
/// \file
/// The syntax tree of a template.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/text/jinja/value.h>

namespace tessera::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
using Expressions = std::vector<ExpressionPtr>;

/// f(a, b, name=c, *more, **named)
struct Arguments {
  Expressions plain;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more, more_named;  ///< or nullptr
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct ListDisplay {
  Expressions items;
  bool tuple = false;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members;
};
struct Attribute {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct Subscript {  // object[index]
  ExpressionPtr object, index;
};
struct SliceSubscript {                     // object[first:last:step]
  ExpressionPtr object, first, last, step;  ///< nullptr if omitted
};
struct Call {
  ExpressionPtr callee;
  Arguments arguments;
};
/// input|name(arguments). In a filter block the input is the body's text and `input` is nullptr.
struct Filter {
  ExpressionPtr input;
  std::string name;
  Arguments arguments;
};
struct Test {  // input is name(arguments)
  ExpressionPtr input;
  std::string name;
  Arguments arguments;
};
struct Unary {
  enum class Op { negate, plus, negation } op;
  ExpressionPtr operand;
};
struct Binary {
  enum class Op { add, subtract, multiply, divide, floor_divide, modulo, power, both, either } op;
  ExpressionPtr left, right;
};
struct Concatenation {  // a ~ b ~ c
  Expressions parts;
};
struct Comparison {  // first < a <= b
  enum class Op { equal, unequal, less, less_equal, greater, greater_equal, in, not_in };
  ExpressionPtr first;
  std::vector<std::pair<Op, ExpressionPtr>> rest;
};
struct Conditional {                         // `then` if `condition` else `otherwise`
  ExpressionPtr condition, then, otherwise;  ///< otherwise may be nullptr
};

struct Expression {
  std::variant<Constant, Name, ListDisplay, DictDisplay, Attribute, Subscript, SliceSubscript, Call, Filter, Test,
               Unary, Binary, Concatenation, Comparison, Conditional>
      node;
  std::size_t offset = 0;  ///< in the source
  int depth = 1;           ///< nesting depth including this expression; the parser limits it
};

struct Statement;
using Block = std::vector<Statement>;

/// The target of an assignment: a name, an attribute of a namespace, or several of these.
struct Target {
  std::string name;
  std::string attribute;      ///< attribute of the namespace `name`; "": the name itself
  std::vector<Target> parts;  ///< not empty: a tuple
  bool tuple = false;
  std::size_t offset = 0;
};

struct Text {
  std::string text;
};
struct Print {
  ExpressionPtr value;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  ///< the last filter in the chain, or nullptr
  Block body;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr list, condition;  ///< condition may be nullptr
  Block body, otherwise;
};
struct Parameters {
  std::vector<std::string> names;
  Expressions defaults;  ///< default values of the last parameters
};
struct MacroDefinition {
  std::string name;
  Parameters parameters;
  Block body;
  bool uses_caller = false, uses_more = false, uses_more_named = false;  ///< caller, varargs, kwargs
};
struct CallBlock {  // the body becomes the macro `caller`
  ExpressionPtr call;
  MacroDefinition caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Block body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Block body;
};
struct Generation {  // the assistant's output
  Block body;
};
struct LoopControl {
  bool leave = false;  ///< break; otherwise continue
};

struct Statement {
  std::variant<Text, Print, Set, SetBlock, If, For, MacroDefinition, CallBlock, FilterBlock, With, Generation,
               LoopControl>
      node;
  std::size_t offset = 0;
};

}  // namespace tessera::text::jinja
