#include <tessera/text/jinja/expression_parser.h>

#include <algorithm>
#include <array>

#include <tessera/base/error.h>

namespace tessera::text::jinja {
namespace {

constexpr int most_depth = 200;   // limit for a tree; chains such as a + b + c + ... count, too
constexpr int most_levels = 120;  // limit for the parser; a bracket uses three levels

std::string described(const Token& token) {
  switch (token.kind) {
    case Token::Kind::data:
      return "text";
    case Token::Kind::block_begin:
      return "'{%'";
    case Token::Kind::block_end:
      return "'%}'";
    case Token::Kind::variable_begin:
      return "'{{'";
    case Token::Kind::variable_end:
      return "'}}'";
    case Token::Kind::string:
      return "a string";
    case Token::Kind::integer:
    case Token::Kind::real:
      return "a number";
    case Token::Kind::end:
      return "the end of the template";
    case Token::Kind::name:
    case Token::Kind::op:
      break;
  }
  return concat("'", token.text, "'");
}

/// The maximum depth of a node's operands.
class Depth {
 public:
  template <class... Operands>
  static int of(const Operands&... operands) {
    Depth depth;
    (depth.see(operands), ...);
    return depth.deepest_;
  }

 private:
  void see(const ExpressionPtr& operand) {
    if (operand) deepest_ = std::max(deepest_, operand->depth);
  }
  template <class First>
  void see(const std::pair<First, ExpressionPtr>& operand) {
    if constexpr (std::is_same_v<First, ExpressionPtr>) see(operand.first);
    see(operand.second);
  }
  template <class T>
  void see(const std::vector<T>& operands) {
    for (const T& operand : operands) see(operand);
  }
  void see(const Arguments& all) {
    see(all.plain);
    see(all.named);
    see(all.more);
    see(all.more_named);
  }
  int deepest_ = 0;
};

int depth_within(const Constant& /*node*/) { return 0; }
int depth_within(const Name& /*node*/) { return 0; }
int depth_within(const ListDisplay& node) { return Depth::of(node.items); }
int depth_within(const DictDisplay& node) { return Depth::of(node.members); }
int depth_within(const Attribute& node) { return Depth::of(node.object); }
int depth_within(const Subscript& node) { return Depth::of(node.object, node.index); }
int depth_within(const SliceSubscript& node) { return Depth::of(node.object, node.first, node.last, node.step); }
int depth_within(const Call& node) { return Depth::of(node.callee, node.arguments); }
int depth_within(const Filter& node) { return Depth::of(node.input, node.arguments); }
int depth_within(const Test& node) { return Depth::of(node.input, node.arguments); }
int depth_within(const Unary& node) { return Depth::of(node.operand); }
int depth_within(const Binary& node) { return Depth::of(node.left, node.right); }
int depth_within(const Concatenation& node) { return Depth::of(node.parts); }
int depth_within(const Comparison& node) { return Depth::of(node.first, node.rest); }
int depth_within(const Conditional& node) { return Depth::of(node.condition, node.then, node.otherwise); }

}  // namespace

/// Counts one level of the parser's recursion for its lifetime.
class ExpressionParser::Level {
 public:
  explicit Level(ExpressionParser& parser) : parser_(parser) {
    if (++parser.level_ > most_levels) parser.fail_here("the expression is nested too deeply");
  }
  ~Level() { --parser_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  ExpressionParser& parser_;
};

ExpressionParser::ExpressionParser(const Source& source) : source_(source), tokens_(read_tokens(source)) {}

const Token& ExpressionParser::peek(std::size_t ahead) const {
  return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
}

Token& ExpressionParser::next() {
  Token& token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool ExpressionParser::take(Token::Kind kind) {
  if (!at(kind)) return false;
  next();
  return true;
}

bool ExpressionParser::take_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

bool ExpressionParser::take_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  next();
  return true;
}

void ExpressionParser::expect(Token::Kind kind, std::string_view what) {
  if (!take(kind)) fail_here(concat("expected ", what, ", found ", described(peek())));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!take_name(name)) fail_here(concat("expected '", name, "', found ", described(peek())));
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!take_operator(op)) fail_here(concat("expected '", op, "', found ", described(peek())));
}

void ExpressionParser::fail_here(const std::string& why) const { fail_at(offset(), why); }

void ExpressionParser::fail_at(std::size_t offset, const std::string& why) const {
  throw InputError(concat(source_.place(offset), ": ", why));
}

ExpressionPtr ExpressionParser::make(decltype(Expression::node) node, std::size_t offset) const {
  const int depth = 1 + std::visit([](const auto& n) { return depth_within(n); }, node);
  if (depth > most_depth) fail_at(offset, concat("more than ", most_depth, " nested expressions"));
  return std::make_unique<Expression>(Expression{std::move(node), offset, depth});
}

ExpressionPtr ExpressionParser::tuple(bool conditional, bool in_parentheses) {
  const std::size_t place = offset();
  Expressions items;
  bool several = false;
  while (!at_tuple_end()) {
    items.push_back(conditional ? expression() : either());
    if (!take_operator(",")) break;
    several = true;
  }
  if (!several && items.size() == 1) return std::move(items.front());
  if (!several && !in_parentheses) fail_here(concat("expected an expression, found ", described(peek())));
  return make(ListDisplay{std::move(items), true}, place);
}

bool ExpressionParser::at_tuple_end() const {
  return at(Token::Kind::variable_end) || at(Token::Kind::block_end) || at_operator(")");
}

ExpressionPtr ExpressionParser::conditional() {
  const Level level(*this);
  ExpressionPtr value = either();
  while (at_name("if")) {
    const std::size_t place = next().offset;
    ExpressionPtr condition = either();
    ExpressionPtr otherwise = take_name("else") ? conditional() : nullptr;
    value = make(Conditional{std::move(condition), std::move(value), std::move(otherwise)}, place);
  }
  return value;
}

/// Parses operands with left-associative operators between them.
ExpressionPtr ExpressionParser::binary(Parse operand,
                                       std::initializer_list<std::pair<std::string_view, Binary::Op>> operators) {
  ExpressionPtr left = (this->*operand)();
  while (true) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [&](const auto& op) { return at_operator(op.first) || at_name(op.first); });
    if (found == operators.end()) return left;
    const std::size_t place = next().offset;
    ExpressionPtr right = (this->*operand)();
    left = make(Binary{found->second, std::move(left), std::move(right)}, place);
  }
}

ExpressionPtr ExpressionParser::either() { return binary(&ExpressionParser::both, {{"or", Binary::Op::either}}); }

ExpressionPtr ExpressionParser::both() { return binary(&ExpressionParser::negation, {{"and", Binary::Op::both}}); }

ExpressionPtr ExpressionParser::negation() {
  const Level level(*this);
  if (!at_name("not")) return comparison();
  const std::size_t place = next().offset;
  return make(Unary{Unary::Op::negation, negation()}, place);
}

ExpressionPtr ExpressionParser::comparison() {
  using Op = Comparison::Op;
  static constexpr std::array<std::pair<std::string_view, Op>, 6> operators = {{{"==", Op::equal},
                                                                                {"!=", Op::unequal},
                                                                                {"<=", Op::less_equal},
                                                                                {">=", Op::greater_equal},
                                                                                {"<", Op::less},
                                                                                {">", Op::greater}}};
  const std::size_t place = offset();
  ExpressionPtr first = sum();
  std::vector<std::pair<Op, ExpressionPtr>> rest;
  while (true) {
    const auto found =
        std::find_if(operators.begin(), operators.end(), [&](const auto& op) { return at_operator(op.first); });
    Op op = Op::in;
    if (found != operators.end()) {
      op = found->second;
      next();
    } else if (at_name("not") && peek(1).kind == Token::Kind::name && peek(1).text == "in") {
      op = Op::not_in;
      next();
      next();
    } else if (!take_name("in")) {
      break;
    }
    rest.emplace_back(op, sum());
  }
  if (rest.empty()) return first;
  return make(Comparison{std::move(first), std::move(rest)}, place);
}

ExpressionPtr ExpressionParser::sum() {
  return binary(&ExpressionParser::concatenation, {{"+", Binary::Op::add}, {"-", Binary::Op::subtract}});
}

ExpressionPtr ExpressionParser::concatenation() {
  const std::size_t place = offset();
  Expressions parts;
  parts.push_back(product());
  while (take_operator("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts.front());
  return make(Concatenation{std::move(parts)}, place);
}

ExpressionPtr ExpressionParser::product() {
  return binary(&ExpressionParser::power, {{"*", Binary::Op::multiply},
                                           {"/", Binary::Op::divide},
                                           {"//", Binary::Op::floor_divide},
                                           {"%", Binary::Op::modulo}});
}

ExpressionPtr ExpressionParser::power() {
  return binary(&ExpressionParser::filtered_unary, {{"**", Binary::Op::power}});
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  const std::size_t place = offset();
  ExpressionPtr node;
  if (take_operator("-"))
    node = make(Unary{Unary::Op::negate, unary(false)}, place);
  else if (take_operator("+"))
    node = make(Unary{Unary::Op::plus, unary(false)}, place);
  else
    node = primary();
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::primary() {
  const std::size_t place = offset();
  switch (peek().kind) {
    case Token::Kind::name:
      return name_or_constant();
    case Token::Kind::string: {
      std::string text = next().text;
      while (at(Token::Kind::string)) text += next().text;
      return make(Constant{Value::of(std::move(text))}, place);
    }
    case Token::Kind::integer:
      return make(Constant{Value::of(next().integer)}, place);
    case Token::Kind::real:
      return make(Constant{Value::of(next().real)}, place);
    default:
      break;
  }
  if (take_operator("(")) {
    ExpressionPtr inner = tuple(/*conditional=*/true, /*in_parentheses=*/true);
    expect_operator(")");
    return inner;
  }
  if (at_operator("[")) return list();
  if (at_operator("{")) return dict();
  fail_here(concat("expected an expression, found ", described(peek())));
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const std::size_t place = offset();
  std::string name = next().text;
  if (name == "true" || name == "True") return make(Constant{Value::of(true)}, place);
  if (name == "false" || name == "False") return make(Constant{Value::of(false)}, place);
  if (name == "none" || name == "None") return make(Constant{Value::none()}, place);
  if (!macros_.empty()) macros_.back().add(NamesUsed{name == "caller", name == "varargs", name == "kwargs"});
  return make(Name{std::move(name)}, place);
}

ExpressionPtr ExpressionParser::list() {
  const std::size_t place = next().offset;
  Expressions items;
  while (!at_operator("]")) {
    items.push_back(expression());
    if (!at_operator("]")) expect_operator(",");
  }
  next();
  return make(ListDisplay{std::move(items), false}, place);
}

ExpressionPtr ExpressionParser::dict() {
  const std::size_t place = next().offset;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members;
  while (!at_operator("}")) {
    ExpressionPtr key = expression();
    expect_operator(":");
    members.emplace_back(std::move(key), expression());
    if (!at_operator("}")) expect_operator(",");
  }
  next();
  return make(DictDisplay{std::move(members)}, place);
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr object) {
  while (true) {
    const std::size_t place = offset();
    if (take_operator(".")) {
      if (at(Token::Kind::name))
        object = make(Attribute{std::move(object), next().text}, place);
      else if (at(Token::Kind::integer))
        object = make(Subscript{std::move(object), primary()}, place);
      else
        fail_here("expected a name or a number after '.'");
    } else if (take_operator("[")) {
      object = subscript(std::move(object), place);
    } else if (at_operator("(")) {
      Arguments given = arguments();
      object = make(Call{std::move(object), std::move(given)}, place);
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object, std::size_t place) {
  std::array<ExpressionPtr, 3> bounds;
  std::size_t bound = 0;
  bool slice = false;
  while (!at_operator("]")) {
    if (take_operator(":")) {
      slice = true;
      if (++bound == bounds.size()) fail_here("a slice has at most three parts");
    } else if (bounds[bound]) {
      fail_here(at_operator(",") ? "several indices are not supported"
                                 : concat("expected ']', found ", described(peek())));
    } else {
      bounds[bound] = expression();
    }
  }
  next();
  if (slice)
    return make(SliceSubscript{std::move(object), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])},
                place);
  if (!bounds[0]) fail_at(place, "an index is missing");
  return make(Subscript{std::move(object), std::move(bounds[0])}, place);
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr input) {
  while (true) {
    const std::size_t place = offset();
    if (at_operator("|")) {
      input = filters(std::move(input), /*bar_needed=*/true);
    } else if (take_name("is")) {
      input = test(std::move(input));
    } else if (at_operator("(")) {
      Arguments given = arguments();
      input = make(Call{std::move(input), std::move(given)}, place);
    } else {
      return input;
    }
  }
}

std::string ExpressionParser::dotted_name() {
  std::string name;
  do {
    if (!at(Token::Kind::name)) fail_here(concat("expected a name, found ", described(peek())));
    name += name.empty() ? "" : ".";
    name += next().text;
  } while (take_operator("."));
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool bar_needed) {
  while (!bar_needed || take_operator("|")) {
    bar_needed = true;
    const std::size_t place = offset();
    std::string name = dotted_name();
    Arguments given = at_operator("(") ? arguments() : Arguments{};
    input = make(Filter{std::move(input), std::move(name), std::move(given)}, place);
  }
  return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  const std::size_t place = offset();
  const bool negated = take_name("not");
  std::string name = dotted_name();
  Arguments given;
  if (at_operator("(")) {
    given = arguments();
  } else if (at(Token::Kind::string) || at(Token::Kind::integer) || at(Token::Kind::real) || at_operator("[") ||
             at_operator("{") || (at(Token::Kind::name) && !at_name("else") && !at_name("or") && !at_name("and"))) {
    if (at_name("is")) fail_here("tests cannot be chained with 'is'");
    given.plain.push_back(postfix(primary()));
  }
  ExpressionPtr node = make(Test{std::move(input), std::move(name), std::move(given)}, place);
  return negated ? make(Unary{Unary::Op::negation, std::move(node)}, place) : std::move(node);
}

Arguments ExpressionParser::arguments() {
  Arguments given;
  expect_operator("(");
  while (!at_operator(")")) {
    const std::size_t place = offset();
    bool fits = !given.more_named;
    if (take_operator("**")) {
      given.more_named = expression();
    } else if (take_operator("*")) {
      fits = fits && !given.more;
      given.more = expression();
    } else if (at(Token::Kind::name) && peek(1).kind == Token::Kind::op && peek(1).text == "=") {
      std::string name = next().text;
      next();
      given.named.emplace_back(std::move(name), expression());
    } else {
      fits = fits && !given.more && given.named.empty();
      given.plain.push_back(expression());
    }
    if (!fits) fail_at(place, "the arguments are in the wrong order: values, name=value, *list, **dict");
    if (!at_operator(")")) expect_operator(",");
  }
  next();
  return given;
}

Target ExpressionParser::targets() {
  const std::size_t place = offset();
  Target all;
  all.offset = place;
  all.tuple = true;
  bool several = false;
  while (!at_tuple_end() && !at_operator("=") && !at_name("in")) {
    all.parts.push_back(target());
    if (!take_operator(",")) break;
    several = true;
  }
  if (all.parts.empty()) fail_here(concat("expected a name to assign to, found ", described(peek())));
  if (several) return all;
  Target only = std::move(all.parts.front());
  return only;
}

Target ExpressionParser::target() {
  const Level level(*this);
  Target result;
  result.offset = offset();
  if (take_operator("(")) {
    result = targets();
    expect_operator(")");
    return result;
  }
  if (!at(Token::Kind::name)) fail_here(concat("expected a name to assign to, found ", described(peek())));
  result.name = next().text;
  for (const std::string_view fixed : {"true", "True", "false", "False", "none", "None"})
    if (result.name == fixed) fail_at(result.offset, concat("'", fixed, "' cannot be assigned to"));
  if (!take_operator(".")) return result;
  if (!at(Token::Kind::name)) fail_here("expected the name of an attribute after '.'");
  result.attribute = next().text;
  return result;
}

}  // namespace tessera::text::jinja
