#pragma once
/// \file
/// Parses expressions and provides the primitives for tags; parser.cpp adds the tags.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/text/jinja/lexer.h>
#include <tessera/text/jinja/tree.h>

namespace tessera::text::jinja {

/// The implicit names of a macro (available without a parameter) that its body uses.
struct NamesUsed {
  bool caller = false, varargs = false, kwargs = false;
  void add(const NamesUsed& other) {
    caller |= other.caller;
    varargs |= other.varargs;
    kwargs |= other.kwargs;
  }
};

class ExpressionParser {
 protected:
  explicit ExpressionParser(const Source& source);

  /// The next token. There always is one, because the last token, `end`, is never consumed.
  const Token& peek(std::size_t ahead = 0) const;
  Token& next();
  std::size_t offset() const { return peek().offset; }

  bool at(Token::Kind kind) const { return peek().kind == kind; }
  bool at_name(std::string_view name) const { return at(Token::Kind::name) && peek().text == name; }
  bool at_operator(std::string_view op) const { return at(Token::Kind::op) && peek().text == op; }
  bool take(Token::Kind kind);
  bool take_name(std::string_view name);
  bool take_operator(std::string_view op);
  void expect(Token::Kind kind, std::string_view what);
  void expect_name(std::string_view name);
  void expect_operator(std::string_view op);
  [[noreturn]] void fail_here(const std::string& why) const;
  [[noreturn]] void fail_at(std::size_t offset, const std::string& why) const;

  ExpressionPtr expression() { return conditional(); }
  /// Parses one expression, or several separated by commas. conditional: allow `a if b else c`.
  ExpressionPtr tuple(bool conditional = true, bool in_parentheses = false);
  /// Parses any number of `|name(arguments)`; the first '|' may be omitted. Returns nullptr without input and filters.
  ExpressionPtr filters(ExpressionPtr input, bool bar_needed);
  Target targets();

  std::vector<NamesUsed> macros_;  ///< the macros whose bodies are being parsed

 private:
  class Level;
  using Parse = ExpressionPtr (ExpressionParser::*)();

  ExpressionPtr make(decltype(Expression::node) node, std::size_t offset) const;
  ExpressionPtr conditional();
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr filtered_unary() { return unary(true); }
  ExpressionPtr binary(Parse operand, std::initializer_list<std::pair<std::string_view, Binary::Op>> operators);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object, std::size_t place);
  ExpressionPtr filters_and_tests(ExpressionPtr input);
  ExpressionPtr test(ExpressionPtr input);
  std::string dotted_name();
  Arguments arguments();
  Target target();
  bool at_tuple_end() const;

  const Source& source_;
  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int level_ = 0;
};

}  // namespace tessera::text::jinja
