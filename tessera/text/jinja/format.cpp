#include <tessera/text/jinja/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>
#include <tessera/text/jinja/text_functions.h>

namespace tessera::text::jinja {
namespace {

/// The supported part of both format languages: [-<>][0][width][.precision][type], with type s, r, d, i or f.
struct Spec {
  char align = 0;  ///< '<' or '>'
  bool zeros = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

constexpr std::int64_t widest = 100'000;

/// The number at `at`; `otherwise` if `at` is not at a digit.
std::int64_t take_number(std::string_view text, std::size_t& at, std::int64_t otherwise) {
  if (at >= text.size() || !is_digit(text[at])) return otherwise;
  std::int64_t value = 0;
  while (at < text.size() && is_digit(text[at])) {
    value = value * 10 + (text[at++] - '0');
    if (value > widest) fail("a width or precision of more than ", widest, " is refused");
  }
  return value;
}

/// Parses from the '0' flag on.
void take_sizes(std::string_view text, std::size_t& at, Spec& spec) {
  if (at < text.size() && text[at] == '0') spec.zeros = (++at, true);
  spec.width = take_number(text, at, 0);
  if (at < text.size() && text[at] == '.') spec.precision = take_number(text, ++at, 0);
}

std::string text_in(Machine& machine, std::string text, const Spec& spec, char usual) {
  if (spec.precision >= 0 && static_cast<std::size_t>(spec.precision) < character_count(text)) {
    std::size_t end = 0;
    for (std::int64_t i = 0; i < spec.precision; ++i) end += character_size(text, end);
    text.resize(end);
  }
  const bool left = (spec.align == 0 ? usual : spec.align) == '<';
  return aligned(machine, text, spec.width, " ", left ? Align::left : Align::right);
}

/// `whole`: for a real number, only the part before the decimal point.
std::string number_in(Machine& machine, const Value& value, const Spec& spec, bool whole) {
  std::string digits;
  bool negative = false;
  if (whole) {
    if (!value.is_integer() && !(std::fabs(value.real()) < 9.2e18)) fail("the integer does not fit in 64 bits");
    const std::int64_t integer = value.is_integer() ? value.integer() : static_cast<std::int64_t>(value.real());
    negative = integer < 0;
    digits = std::to_string(negative ? 0 - static_cast<std::uint64_t>(integer) : static_cast<std::uint64_t>(integer));
    if (spec.precision > static_cast<std::int64_t>(digits.size()))
      digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  } else {
    if (spec.precision > 1000) fail("a precision of more than 1000 is refused");
    const double real = value.real();
    negative = std::signbit(real) && !std::isnan(real);
    char text[1400];
    std::snprintf(text, sizeof text, "%.*f", static_cast<int>(spec.precision < 0 ? 6 : spec.precision),
                  std::isnan(real) ? real : std::fabs(real));
    digits = std::isnan(real) ? "nan" : text;
  }
  const std::string sign = negative ? "-" : "";
  if (spec.zeros && spec.align == 0)
    return sign + aligned(machine, digits, spec.width - static_cast<std::int64_t>(sign.size()), "0", Align::right);
  return aligned(machine, sign + digits, spec.width, " ", spec.align == '<' ? Align::left : Align::right);
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
      fail("'%' has more values than the format uses");
    return std::move(out_);
  }

 private:
  /// In Python, any value with items counts as a mapping as long as no key is looked up.
  bool is_mapping_like() const {
    return values_.is_undefined() || values_.is_sequence(Sequence::Kind::list) ||
           values_.is_sequence(Sequence::Kind::range);
  }

  const Value& next_value() {
    if (taken_ >= items_.size()) fail("'%' has fewer values than the format uses");
    return items_[taken_++];
  }

  const Value& named_value(std::size_t& at) {
    const std::size_t end = format_.find(')', at);
    if (end == std::string_view::npos) fail("a format has '%(' without ')'");
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
    if (at < format_.size() && format_[at] == '-') spec.align = format_[at++] == '-' ? '<' : '\0';
    take_sizes(format_, at, spec);
    if (at >= format_.size()) fail("a format ends inside '%...'");
    spec.type = format_[at++];
    if (spec.type == '%') {
      out_ += '%';
      return;
    }
    if (value == nullptr) value = &next_value();
    if (spec.type == 's' || spec.type == 'r') {
      out_ += text_in(machine_, spec.type == 's' ? to_str(machine_, *value) : to_repr(machine_, *value), spec, '>');
      return;
    }
    if (spec.type != 'd' && spec.type != 'i' && spec.type != 'f')
      fail("'%", spec.type, "' in a format is not supported; supported are %s, %r, %d, %i and %f");
    if (value->is_undefined()) fail(value->why());
    if (!value->is_number()) fail("'%", spec.type, "' needs a number, not a ", type_name(*value));
    out_ += number_in(machine_, *value, spec, spec.type != 'f');
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

std::string formatted(Machine& machine, const Value& value, std::string_view text) {
  if (text.empty()) return to_str(machine, value);
  Spec spec;
  std::size_t at = 0;
  if (text[0] == '<' || text[0] == '>') spec.align = text[at++];
  take_sizes(text, at, spec);
  if (at < text.size()) spec.type = text[at++];
  const bool fits = value.is_string() ? (spec.type == 0 || spec.type == 's') && !spec.zeros
                    : value.is_integer()
                        ? spec.type == 'f' || ((spec.type == 0 || spec.type == 'd') && spec.precision < 0)
                        : value.is(Value::Kind::real) && spec.type == 'f';
  if (at < text.size() || !fits)
    fail("the format '", text, "' of a ", type_name(value),
         " is not supported; supported is [<>][0][width][.precision] before s, d or f");
  if (value.is_string()) return text_in(machine, value.string(), spec, '<');
  return number_in(machine, value, spec, spec.type != 'f');
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
        fail("a format has a single '}'");
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
    if (end == std::string_view::npos) fail("a format has '{' without '}'");
    std::string_view inner = format_.substr(at, end - at), spec;
    at = end + 1;
    if (inner.find_first_of("{!") != std::string_view::npos)
      fail("'{", inner, "}': nested fields and conversions in a format are not supported");
    if (const std::size_t colon = inner.find(':'); colon != std::string_view::npos) {
      spec = inner.substr(colon + 1);
      inner = inner.substr(0, colon);
    }
    out_ += formatted(machine_, named(inner), spec);
  }

  Value named(std::string_view name) {
    std::size_t at = 0;
    const std::int64_t number = name.empty() ? next_++ : take_number(name, at, -1);
    if (number >= 0 && at == name.size()) {
      if (static_cast<std::size_t>(number) >= given_.plain.size())
        fail("a format uses value ", number, ", which is not given");
      return given_.plain[static_cast<std::size_t>(number)];
    }
    for (const auto& [key, value] : given_.named)
      if (key == name) return value;
    fail("a format uses '", name, "', which is not given");
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
