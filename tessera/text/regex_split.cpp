#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <tessera/base/error.h>
#include <tessera/text/regex_split.h>
#include <tessera/text/unicode_ranges.h>
#include <array>
#include <utility>

namespace tessera::text {

namespace {

std::string hex(std::uint32_t c) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (int shift = 20; shift >= 0; shift -= 4) out.push_back(digits[c >> shift & 15]);
  return concat("\\x{", out, "}");
}

template <std::size_t N>
std::string spell(const std::array<CodeRange, N>& ranges, bool complement) {
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
               " is not supported (\\p{L} \\p{N} \\s, their complements, and plain characters are): ", pattern_));
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
    const auto put = [&](std::string ranges, std::size_t size) {
      out_ += in_class_ ? ranges : concat("[", ranges, "]");
      at_ += size;
    };
    if (c == 's' || c == 'S') return put(spell(space_ranges, c == 'S'), 2);
    if (c == 'p' || c == 'P') {
      const bool complement = c == 'P';
      if (rest.substr(2).starts_with("{L}")) return put(spell(letter_ranges, complement), 5);
      if (rest.substr(2).starts_with("{N}")) return put(spell(number_ranges, complement), 5);
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

void RegexSplitter::split(std::string_view text, std::vector<std::string_view>& out) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code_->regex, nullptr), &pcre2_match_data_free);
  std::size_t done = 0, from = 0;
  while (from < text.size()) {
    const int rc = pcre2_match(code_->regex, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                               PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      throw Error(concat("the tokenizer's regular expression failed (PCRE2 error ", rc, ") at byte ", from, " of ",
                         text.size(), " bytes of text"));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    const std::size_t begin = bounds[0], end = bounds[1];
    TESSERA_CHECK(begin < end && begin >= done, "match [", begin, ", ", end, ") after ", done);
    if (done < begin) out.push_back(text.substr(done, begin - done));
    out.push_back(text.substr(begin, end - begin));
    done = from = end;
  }
  if (done < text.size()) out.push_back(text.substr(done));
}

}  // namespace tessera::text
