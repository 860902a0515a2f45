#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <tessera/base/error.h>
#include <tessera/text/regex_split.h>
#include <tessera/text/unicode_properties.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace tessera::text {

namespace {

std::string hex(std::uint32_t c) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (int shift = 20; shift >= 0; shift -= 4) out.push_back(digits[c >> shift & 15]);
  return concat("\\x{", out, "}");
}

std::string spell(std::span<const CodeRange> ranges, bool complement) {
  std::string out;
  std::uint32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (!complement) {
      out += concat(hex(range.first), "-", hex(range.last));
    } else if (next < range.first) {
      // Surrogates are no characters and PCRE2 refuses them in a class.
      if (next < 0xD800 && range.first > 0xDFFF) {
        out += concat(hex(next), "-", hex(0xD7FF), hex(0xE000), "-", hex(range.first - 1));
      } else {
        out += concat(hex(next), "-", hex(range.first - 1));
      }
    }
    next = range.last + 1;
  }
  if (complement && next < 0xD800) {
    out += concat(hex(next), "-", hex(0xD7FF), hex(0xE000), "-", hex(0x10FFFF));
  } else if (complement) {
    out += concat(hex(next), "-", hex(0x10FFFF));
  }
  return out;
}

/// The ranges of a class as they stand inside [...], and of its complement.
struct Property {
  std::string_view name;
  std::string ranges, complement;
  Property(std::string_view its_name, std::span<const CodeRange> its_ranges)
      : name(its_name), ranges(spell(its_ranges, false)), complement(spell(its_ranges, true)) {}
};

/// Spelt out once; the first is \s.
const std::array<Property, 12>& properties() {
  static const std::array<Property, 12> all{{{"", space_ranges},
                                             {"L", letter_ranges},
                                             {"Lu", upper_ranges},
                                             {"Ll", lower_ranges},
                                             {"Lt", title_ranges},
                                             {"Lm", modifier_letter_ranges},
                                             {"Lo", other_letter_ranges},
                                             {"M", mark_ranges},
                                             {"N", number_ranges},
                                             {"Nd", decimal_ranges},
                                             {"P", punctuation_ranges},
                                             {"S", symbol_ranges}}};
  return all;
}

/// Reads the pattern left to right; knows whether it is inside [...].
class Rewriter {
 public:
  Rewriter(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    if (in_class_) refuse("an unclosed [");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw InputError(
        concat(where_, ": regular expression with ", what, " at offset ", at_,
               " is not supported (plain characters, classes, groups, lookahead, \\s and \\p{L Lu Ll Lt Lm Lo M N Nd P S} "
               "are): ",
               pattern_));
  }

  char peek(std::size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (in_class_) {
      if (c == '[') refuse("a nested class");
      if (c == '&' && peek(1) == '&') refuse("a class intersection");
      if (c == ']') in_class_ = false;
    } else {
      if (c == '^' || c == '$') refuse(concat("'", c, "'"));
      if (c == '}' && peek(1) == '+') refuse("'}+'");
      if (c == '(' && peek(1) == '?' && peek(2) == '<') refuse("a lookbehind or a named group");
      if (c == '[') {
        in_class_ = true;
        out_ += c;
        ++at_;
        if (peek(0) == '^') {
          out_ += '^';
          ++at_;
        }
        if (peek(0) == ']') refuse("a class that begins with ']'");
        return;
      }
    }
    out_ += c;
    ++at_;
  }

  void escape() {
    const char c = peek(1);
    std::string_view rest = pattern_.substr(at_);
    const auto put = [&](const Property& property, bool complement, std::size_t size) {
      const std::string& ranges = complement ? property.complement : property.ranges;
      out_ += in_class_ ? ranges : concat("[", ranges, "]");
      at_ += size;
    };
    if (c == 's' || c == 'S') return put(properties()[0], c == 'S', 2);
    if (c == 'p' || c == 'P') {
      const bool complement = c == 'P';
      const std::size_t end = rest.find('}');
      if (rest.substr(2).starts_with('{') && end != std::string_view::npos && end > 3) {
        for (const Property& property : properties())
          if (rest.substr(3, end - 3) == property.name) return put(property, complement, end + 1);
      }
      refuse(concat("the property ", rest.substr(0, rest.find('}') + 1)));
    }
    const bool letter_or_digit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == '\0' || (letter_or_digit && std::string_view("rntfv").find(c) == std::string_view::npos)) {
      refuse(concat("the escape ", rest.substr(0, 2)));
    }
    // Oniguruma's \v is the vertical tab; PCRE2's is a class.
    out_ += c == 'v' ? "\\x0b" : std::string(rest.substr(0, 2));
    at_ += 2;
  }

  std::string_view pattern_;
  const std::string& where_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string spell_out_classes(std::string_view pattern, const std::string& where) {
  return Rewriter(pattern, where).run();
}

struct RegexSplitter::Code {
  pcre2_code* regex = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(regex); }
};

RegexSplitter::RegexSplitter(const std::string& pattern, const std::string& where) : code_(std::make_unique<Code>()) {
  const std::string spelt = spell_out_classes(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->regex = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelt.data()), spelt.size(),
                               PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!code_->regex) {
    std::array<unsigned char, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    throw InputError(
        concat(where, ": bad regular expression: ", reinterpret_cast<const char*>(message.data()), ": ", pattern));
  }
  std::uint32_t may_be_empty = 0;
  pcre2_pattern_info(code_->regex, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  if (may_be_empty) throw InputError(concat(where, ": the regular expression can match nothing at all: ", pattern));
  // Without JIT (a CPU that it does not know) pcre2_match interprets: slower, same matches.
  pcre2_jit_compile(code_->regex, PCRE2_JIT_COMPLETE);
}

RegexSplitter::~RegexSplitter() = default;
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;

struct RegexScratch::Data {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);  // the whole match; groups are not asked for
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  Data() = default;
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  ~Data() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
  }
};

RegexScratch::RegexScratch() : data_(std::make_unique<Data>()) {
  if (!data_->match || !data_->context) throw Error("out of memory for a regular expression's matches");
}
RegexScratch::~RegexScratch() = default;

std::optional<RegexSplitter::Match> RegexSplitter::find(std::string_view text, std::size_t from,
                                                        RegexScratch& scratch) const {
  // Backtracking through one long run (of blanks, say) is linear and must not be taken for backtracking without end.
  constexpr std::size_t steps = 10'000'000, most = 0xFFFF'FFFF;
  pcre2_set_match_limit(scratch.data_->context, static_cast<std::uint32_t>(std::min(steps + 8 * text.size(), most)));
  const int rc = pcre2_match(code_->regex, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                             PCRE2_NO_UTF_CHECK, scratch.data_->match, scratch.data_->context);
  if (rc == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (rc < 0)
    throw Error(concat("the tokenizer's regular expression failed (PCRE2 error ", rc, ") at byte ", from, " of ",
                       text.size(), " bytes of text"));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data_->match);
  TESSERA_CHECK(bounds[0] < bounds[1] && bounds[0] >= from, "match [", bounds[0], ", ", bounds[1], ") from ", from);
  return Match{bounds[0], bounds[1]};
}

}  // namespace tessera::text
