#include <tessera/text/jinja/parser.h>

#include <algorithm>
#include <initializer_list>

#include <tessera/base/error.h>
#include <tessera/text/jinja/expression_parser.h>

namespace tessera::text::jinja {
namespace {

using Kind = Token::Kind;

constexpr int most_blocks = 60;  // nested

class StatementParser : ExpressionParser {
 public:
  explicit StatementParser(const Source& source) : ExpressionParser(source) {}

  Tree parse_all() {
    Block all = statements({});
    return {std::move(all), generation_};
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  /// Parses up to the tag of one of `ends`, whose name is then the next token; without ends, parses up to the
  /// template's end.
  Block statements(Ends ends) {
    const std::size_t begin = offset();
    if (++blocks_ > most_blocks) fail_here(concat("more than ", most_blocks, " nested blocks"));
    Block block;
    while (true) {
      if (at(Kind::end)) {
        if (ends.size() != 0)
          fail_at(begin, concat("the block that begins here is not closed: '", *(ends.end() - 1), "' is missing"));
        break;
      }
      const std::size_t place = offset();
      if (at(Kind::data)) {
        block.push_back({Text{next().text}, place});
      } else if (take(Kind::variable_begin)) {
        block.push_back({Print{tuple()}, place});
        expect(Kind::variable_end, "'}}'");
      } else {
        expect(Kind::block_begin, "a tag");
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view name) { return at_name(name); })) break;
        add_statement(block, place);
        expect(Kind::block_end, "'%}'");
      }
    }
    --blocks_;
    return block;
  }

  /// Parses the body after a tag; consumes its end tag up to and including the name.
  Block body(Ends ends) {
    take_operator(":");
    expect(Kind::block_end, "'%}'");
    return statements(ends);
  }
  Block body_and_end(std::string_view end) {
    Block block = body({end});
    next();
    return block;
  }

  void add_statement(Block& block, std::size_t place) {
    if (!at(Kind::name)) fail_here("expected the name of a tag");
    const std::string name = next().text;
    if (name == "print") return add_prints(block, place);
    block.push_back({statement(name, place), place});
  }

  void add_prints(Block& block, std::size_t place) {
    while (!at(Kind::block_end)) {
      block.push_back({Print{expression()}, place});
      if (!at(Kind::block_end)) expect_operator(",");
    }
  }

  decltype(Statement::node) statement(const std::string& name, std::size_t place) {
    if (name == "set") return set();
    if (name == "if") return branches();
    if (name == "for") return loop();
    if (name == "macro") return macro();
    if (name == "call") return call_block();
    if (name == "filter") {
      ExpressionPtr filter = filters(nullptr, /*bar_needed=*/false);
      return FilterBlock{std::move(filter), captured_body("endfilter")};
    }
    if (name == "with") return with();
    if (name == "generation") return generation();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_at(place, concat("'", name, "' is outside a loop"));
      return LoopControl{name == "break"};
    }
    for (const std::string_view other : {"extends", "include", "import", "from", "block", "autoescape", "do"})
      if (name == other) fail_at(place, concat("the tag '", name, "' is not part of the language of chat templates"));
    fail_at(place, concat("unknown tag '", name, "'"));
  }

  decltype(Statement::node) set() {
    Target target = targets();
    if (take_operator("=")) return Set{std::move(target), tuple()};
    ExpressionPtr filter = filters(nullptr, /*bar_needed=*/true);
    return SetBlock{std::move(target), std::move(filter), captured_body("endset")};
  }

  If branches() {
    If result;
    while (true) {
      ExpressionPtr condition = tuple(/*conditional=*/false);
      result.branches.emplace_back(std::move(condition), body({"elif", "else", "endif"}));
      const std::string name = next().text;
      if (name == "else") result.otherwise = body_and_end("endif");
      if (name != "elif") return result;
    }
  }

  For loop() {
    For result;
    result.target = targets();
    expect_name("in");
    result.list = tuple(/*conditional=*/false);
    if (take_name("if")) result.condition = expression();
    if (at_name("recursive")) fail_here("recursive loops are not supported: use a macro that calls itself");
    ++loops_;
    result.body = body({"else", "endfor"});
    --loops_;
    if (next().text == "else") result.otherwise = body_and_end("endfor");
    return result;
  }

  Parameters parameters() {
    Parameters result;
    expect_operator("(");
    while (!at_operator(")")) {
      if (!result.names.empty()) expect_operator(",");
      result.names.push_back(parameter_name());
      if (take_operator("="))
        result.defaults.push_back(expression());
      else if (!result.defaults.empty())
        fail_here("a parameter without a default follows one with a default");
    }
    next();
    return result;
  }

  std::string parameter_name() {
    if (!at(Kind::name)) fail_here("expected a name");
    return next().text;
  }

  /// Loops around a macro do not belong to it, so a break inside it would have no loop to leave.
  void read_macro_body(MacroDefinition& definition, std::string_view end) {
    macros_.push_back({});
    definition.body = captured_body(end);
    const NamesUsed used = macros_.back();
    macros_.pop_back();
    if (!macros_.empty()) macros_.back().add(used);
    definition.uses_caller = used.caller;
    definition.uses_more = used.varargs;
    definition.uses_more_named = used.kwargs;
  }

  MacroDefinition macro() {
    MacroDefinition definition;
    definition.name = parameter_name();
    definition.parameters = parameters();
    read_macro_body(definition, "endmacro");
    return definition;
  }

  CallBlock call_block() {
    CallBlock block;
    block.caller.name = "caller";
    if (at_operator("(")) block.caller.parameters = parameters();
    block.call = expression();
    if (!std::holds_alternative<Call>(block.call->node)) fail_here("expected a call in the tag 'call'");
    read_macro_body(block.caller, "endcall");
    return block;
  }

  /// Parses a body from which break and continue cannot leave the enclosing loops.
  Block captured_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Block block = body_and_end(end);
    loops_ = loops;
    return block;
  }

  Generation generation() {
    generation_ = true;
    return {captured_body("endgeneration")};
  }

  With with() {
    With result;
    while (!at(Kind::block_end)) {
      if (!result.values.empty()) expect_operator(",");
      Target target = targets();
      expect_operator("=");
      result.values.emplace_back(std::move(target), expression());
    }
    result.body = body_and_end("endwith");
    return result;
  }

  int blocks_ = 0, loops_ = 0;
  bool generation_ = false;
};

}  // namespace

Tree parse(const Source& source) { return StatementParser(source).parse_all(); }

}  // namespace tessera::text::jinja
