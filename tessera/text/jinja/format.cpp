#include <tessera/text/jinja/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>
#include <tessera/text/jinja/text_functions.h>

namespace tessera::text::jinja {
namespace {

/// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;  ///< '<', '>', '^', '=': zeros behind the sign
  char sign = '-';
  bool alternate = false, grouped = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

constexpr std::int64_t widest = 100'000;

/// Digits at `at`, or `otherwise`.
std::int64_t take_number(std::string_view text, std::size_t& at, std::int64_t otherwise) {
  if (at >= text.size() || !is_digit(text[at])) return otherwise;
  std::int64_t value = 0;
  while (at < text.size() && is_digit(text[at])) {
    value = value * 10 + (text[at++] - '0');
    if (value > widest) fail("a width or precision of more than ", widest, " is refused");
  }
  return value;
}

std::string real_digits(double magnitude, const Spec& spec) {
  char type = spec.type == '%' ? 'f' : spec.type;
  const std::int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  if (precision > 1000) fail("a precision of more than 1000 is refused");
  if (std::isnan(magnitude)) return type >= 'A' && type <= 'Z' ? "NAN" : "nan";
  if (std::isinf(magnitude)) return type >= 'A' && type <= 'Z' ? "INF" : "inf";
  const char format[] = {'%',
                         spec.alternate ? '#' : '.',
                         spec.alternate ? '.' : '*',
                         spec.alternate ? '*' : type,
                         spec.alternate ? type : '\0',
                         '\0'};
  std::array<char, 1400> text;
  std::snprintf(text.data(), text.size(), format, static_cast<int>(precision), magnitude);
  return text.data();
}

/// Digits of a number's magnitude, without its sign.
std::string number_digits(const Value& value, const Spec& spec) {
  if (value.is(Value::Kind::real) || std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos) {
    const double magnitude = std::fabs(value.real()) * (spec.type == '%' ? 100 : 1);
    return real_digits(magnitude, spec) + (spec.type == '%' ? "%" : "");
  }
  const std::int64_t integer = value.integer();
  auto magnitude = integer < 0 ? 0 - static_cast<std::uint64_t>(integer) : static_cast<std::uint64_t>(integer);
  const unsigned base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string digits;
  // A pointer: of an array that a condition chooses, g++ 12's bounds sanitizer reads element 0.
  const char* const characters = spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  do digits.insert(digits.begin(), characters[magnitude % base]);
  while ((magnitude /= base) != 0);
  if (static_cast<std::int64_t>(digits.size()) < spec.precision)
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  if (spec.alternate && base != 10) digits.insert(0, {'0', spec.type});
  return digits;
}

void group(std::string& digits) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, ',');
}

bool is_negative(const Value& value) {
  return value.is(Value::Kind::real) ? std::signbit(value.real()) && !std::isnan(value.real()) : value.integer() < 0;
}

std::string number_text(Machine& machine, const Value& value, const Spec& spec) {
  std::string digits = number_digits(value, spec);
  if (spec.grouped) group(digits);
  const std::string sign = is_negative(value) ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align == '=')
    return sign +
           aligned(machine, digits, spec.width - static_cast<std::int64_t>(sign.size()), spec.fill, Align::right);
  const Align align = spec.align == '<' ? Align::left : spec.align == '^' ? Align::center : Align::right;
  return aligned(machine, sign + digits, spec.width, spec.fill, align);
}

std::string cut(std::string text, std::int64_t most) {
  if (most < 0 || static_cast<std::size_t>(most) >= character_count(text)) return text;
  std::string out;
  for (const std::string_view character : characters_of(text)) {
    if (most-- == 0) break;
    out += character;
  }
  return out;
}

/// A text in its width; format() centres otherwise than str.center does.
std::string padded(Machine& machine, const std::string& text, const Spec& spec, Align usual) {
  const Align align = spec.align == '<' ? Align::left : spec.align == '>' ? Align::right : usual;
  if (spec.align != '^') return aligned(machine, text, spec.width, spec.fill, align);
  const auto missing = spec.width - static_cast<std::int64_t>(character_count(text));
  if (missing <= 0) return text;
  return aligned(machine, aligned(machine, text, spec.width - (missing - missing / 2), spec.fill, Align::right),
                 spec.width, spec.fill, Align::left);
}

// "%s" % value

class PercentFormat {
 public:
  PercentFormat(Machine& machine, std::string_view format, const Value& values)
      : machine_(machine), format_(format), values_(values) {
    if (values.is_sequence(Sequence::Kind::tuple))
      items_ = values.sequence().items;
    else
      items_ = {values};
  }

  std::string write() {
    for (std::size_t at = 0; at < format_.size();) {
      const std::size_t percent = std::min(format_.find('%', at), format_.size());
      out_ += format_.substr(at, percent - at);
      at = percent;
      if (at < format_.size()) conversion(at);
      machine_.charge(16);
    }
    if (taken_ < items_.size() && !values_.is_dict() && !(named_ || is_mapping_like()))
      fail("'%' has more values than the format names");
    return std::move(out_);
  }

 private:
  /// Python lets what has items stand for a mapping that is not looked into.
  bool is_mapping_like() const {
    return values_.is_undefined() || values_.is_sequence(Sequence::Kind::list) ||
           values_.is_sequence(Sequence::Kind::range);
  }

  const Value& next_value() {
    if (taken_ >= items_.size()) fail("'%' has fewer values than the format names");
    return items_[taken_++];
  }

  const Value& named_value(std::size_t& at) {
    const std::size_t end = format_.find(')', at);
    if (end == std::string_view::npos) fail("'%(' without ')' in a format");
    if (!values_.is_dict()) fail("'%(name)' needs a dict");
    const std::string name(format_.substr(at, end - at));
    at = end + 1;
    const Value* member = values_.member(name);
    if (member == nullptr) fail("'%(", name, ")': the dict has no such key");
    named_ = true;
    return *member;
  }

  void conversion(std::size_t& at) {
    ++at;
    const Value* value = nullptr;
    if (at < format_.size() && format_[at] == '(') value = &named_value(++at);
    Spec spec;
    bool zero = false;
    for (; at < format_.size() && std::string_view("-+ #0").find(format_[at]) != std::string_view::npos; ++at) {
      const char flag = format_[at];
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      if (flag == '0') zero = true;
    }
    spec.width = take_number(format_, at, 0);
    if (at < format_.size() && format_[at] == '.') spec.precision = take_number(format_, ++at, 0);
    if (at >= format_.size()) fail("a format ends within '%...'");
    spec.type = format_[at++];
    if (spec.type == '%') {
      out_ += '%';
      return;
    }
    if (value == nullptr) value = &next_value();
    if (zero && spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    append(*value, spec);
  }

  void append(const Value& value, Spec& spec) {
    if (spec.type == 's' || spec.type == 'r') {
      if (spec.align == '=') spec.align = 0;
      spec.fill = " ";
      const std::string text = spec.type == 's' ? to_str(machine_, value) : to_repr(machine_, value);
      out_ += padded(machine_, cut(text, spec.precision), spec, Align::right);
      return;
    }
    if (spec.type == 'c' && value.is_string() && character_count(value.string()) == 1) {
      spec.align = spec.align == '=' ? '\0' : spec.align;
      out_ += padded(machine_, value.string(), spec, Align::right);
      return;
    }
    if (std::string_view("diuxXoeEfFgG").find(spec.type) == std::string_view::npos)
      fail("'%", spec.type, "' in a format is not supported");
    if (value.is_undefined()) fail(value.why());
    const bool whole = std::string_view("diu").find(spec.type) != std::string_view::npos;
    const bool integral = whole || spec.type == 'x' || spec.type == 'X' || spec.type == 'o';
    if (!value.is_number() || (integral && !whole && !value.is_integer()))
      fail("'%", spec.type, "' needs a number, not a ", type_name(value));
    if (whole && !value.is_integer()) {
      if (!(std::fabs(value.real()) < 9.2e18)) fail("'%", spec.type, "' of a number beyond 64 bits");
      out_ += number_text(machine_, Value::of(static_cast<std::int64_t>(value.real())), spec);
      return;
    }
    out_ += number_text(machine_, value, spec);
  }

  Machine& machine_;
  std::string_view format_;
  const Value& values_;
  Values items_;
  std::size_t taken_ = 0;
  bool named_ = false;
  std::string out_;
};

// "{}".format(value)

Spec read_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const std::size_t first = text.empty() ? 0 : characters_of(text).front().size();
  if (first > 0 && first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string_view::npos) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') spec.alternate = (++at, true);
  if (at < text.size() && text[at] == '0') {
    ++at;
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = take_number(text, at, 0);
  if (at < text.size() && text[at] == ',') spec.grouped = (++at, true);
  if (at < text.size() && text[at] == '.') {
    spec.precision = take_number(text, ++at, -1);
    if (spec.precision < 0) fail("a format has '.' without a precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("the format '", text, "' is not understood");
  return spec;
}

std::string formatted(Machine& machine, const Value& value, std::string_view text) {
  if (text.empty()) return to_str(machine, value);
  Spec spec = read_spec(text);
  if (value.is_string()) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.grouped)
      fail("the format '", text, "' does not fit a str");
    return padded(machine, cut(value.string(), spec.precision), spec, Align::left);
  }
  if (!value.is_number()) fail("a ", type_name(value), " has no formats, '", text, "' is given");
  const bool real = value.is(Value::Kind::real);
  if (std::string_view(real ? "eEfFgG%" : "dxXobeEfFgG%").find(spec.type) == std::string_view::npos && spec.type != 0)
    fail("the format '", text, "' does not fit a ", type_name(value));
  if (spec.type == 0 && real && spec.precision < 0) {
    const std::string digits = real_repr(value.real());
    return padded(machine, digits, spec, Align::right);
  }
  if (spec.type == 0) spec.type = real ? 'g' : 'd';
  if (!real && spec.precision >= 0 && std::string_view("dxXob").find(spec.type) != std::string_view::npos)
    fail("an integer has no precision: '", text, "'");
  if (spec.align == '^') {
    Spec plain = spec;
    plain.width = 0;
    return padded(machine, number_text(machine, value, plain), spec, Align::right);
  }
  return number_text(machine, value, spec);
}

class BraceFormat {
 public:
  BraceFormat(Machine& machine, std::string_view format, const Given& given)
      : machine_(machine), format_(format), given_(given) {}

  std::string write() {
    for (std::size_t at = 0; at < format_.size();) {
      const char c = format_[at];
      const bool doubled = at + 1 < format_.size() && format_[at + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out_ += c;
        at += 2;
      } else if (c == '{') {
        field(++at);
      } else if (c == '}') {
        fail("a single '}' stands in a format");
      } else {
        out_ += format_[at++];
      }
      machine_.charge(1);
    }
    return std::move(out_);
  }

 private:
  void field(std::size_t& at) {
    const std::size_t end = format_.find('}', at);
    if (end == std::string_view::npos) fail("a '{' without '}' stands in a format");
    std::string_view inner = format_.substr(at, end - at), spec;
    at = end + 1;
    if (inner.find('{') != std::string_view::npos) fail("fields within fields of a format are not supported");
    if (const std::size_t colon = inner.find(':'); colon != std::string_view::npos) {
      spec = inner.substr(colon + 1);
      inner = inner.substr(0, colon);
    }
    char conversion = 0;
    if (const std::size_t mark = inner.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != inner.size() || (inner[mark + 1] != 's' && inner[mark + 1] != 'r'))
        fail("the conversion in '{", inner, "}' is not supported");
      conversion = inner[mark + 1];
      inner = inner.substr(0, mark);
    }
    Value value = named(inner);
    if (conversion == 's') value = machine_.text(to_str(machine_, value));
    if (conversion == 'r') value = machine_.text(to_repr(machine_, value));
    out_ += formatted(machine_, value, spec);
  }

  Value named(std::string_view name) {
    std::size_t at = 0;
    const std::int64_t number = name.empty() ? next_++ : take_number(name, at, -1);
    if (number >= 0 && at == name.size()) {
      if (static_cast<std::size_t>(number) >= given_.plain.size())
        fail("a format names value ", number, ", which is not given");
      return given_.plain[static_cast<std::size_t>(number)];
    }
    for (const auto& [key, value] : given_.named)
      if (key == name) return value;
    fail("a format names '", name, "', which is not given");
  }

  Machine& machine_;
  std::string_view format_;
  const Given& given_;
  std::int64_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string percent_format(Machine& machine, std::string_view format, const Value& values) {
  return PercentFormat(machine, format, values).write();
}

std::string brace_format(Machine& machine, std::string_view format, const Given& given) {
  return BraceFormat(machine, format, given).write();
}

}  // namespace tessera::text::jinja
