#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <tessera/base/error.h>
#include <tessera/text/bpe/compact_pattern.h>
#include <tessera/text/bpe/regex_split.h>
#include <tessera/text/unicode/utf8.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>

namespace tessera::text {

namespace {

std::string hex_digits(std::uint32_t c) {
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
      out += concat(hex_digits(range.first), "-", hex_digits(range.last));
    } else if (next < range.first) {
      // Surrogates are not characters, and PCRE2 refuses them in a class.
      if (next < 0xD800 && range.first > 0xDFFF) {
        out += concat(hex_digits(next), "-", hex_digits(0xD7FF), hex_digits(0xE000), "-", hex_digits(range.first - 1));
      } else {
        out += concat(hex_digits(next), "-", hex_digits(range.first - 1));
      }
    }
    next = range.last + 1;
  }
  if (complement && next < 0xD800) {
    out += concat(hex_digits(next), "-", hex_digits(0xD7FF), hex_digits(0xE000), "-", hex_digits(0x10FFFF));
  } else if (complement) {
    out += concat(hex_digits(next), "-", hex_digits(0x10FFFF));
  }
  return out;
}

/// The ranges of a class, and of its complement, as written inside [...].
struct Property {
  std::string_view name;
  std::string ranges, complement;
  explicit Property(std::string_view its_name)
      : name(its_name),
        ranges(spell(*find_property(its_name), false)),
        complement(spell(*find_property(its_name), true)) {}
};

/// Built once; the first is \s.
const std::vector<Property>& properties() {
  static const std::vector<Property> all = [] {
    std::vector<Property> list;
    for (const char* name : {"", "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S"}) list.emplace_back(name);
    return list;
  }();
  return all;
}

/// Processes the pattern left to right; tracks whether it is inside [...].
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
    throw InputError(concat(
        where_, ": regular expression with ", what, " at offset ", at_,
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
  std::optional<CompactAlphabet> alphabet;  ///< alphabet of the regex; nullopt: the regex searches UTF-8
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(regex); }
};

RegexSplitter::RegexSplitter(const std::string& pattern, const std::string& where, bool translate)
    : code_(std::make_unique<Code>()) {
  std::string spelt = spell_out_classes(pattern, where);
  std::uint32_t options = PCRE2_NEVER_BACKSLASH_C;
  if (auto translated = translate ? compact(pattern) : std::nullopt) {
    spelt = std::move(translated->pattern);
    code_->alphabet.emplace(std::move(translated->alphabet));
  } else {
    options |= PCRE2_UTF | PCRE2_NO_UTF_CHECK;
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->regex =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelt.data()), spelt.size(), options, &error, &offset, nullptr);
  if (!code_->regex) {
    std::array<unsigned char, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    throw InputError(
        concat(where, ": bad regular expression: ", reinterpret_cast<const char*>(message.data()), ": ", pattern));
  }
  std::uint32_t may_be_empty = 0;
  pcre2_pattern_info(code_->regex, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  if (may_be_empty) throw InputError(concat(where, ": the regular expression can match the empty string: ", pattern));
  // Without JIT (unsupported CPU) pcre2_match interprets the pattern: slower, but with the same matches.
  pcre2_jit_compile(code_->regex, PCRE2_JIT_COMPLETE);
}

RegexSplitter::~RegexSplitter() = default;
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;

struct RegexScratch::Data {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);  // only the whole match; groups are not needed
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  std::deque<std::string> translations;  // translations used by the active searches, followed by spare ones
  std::size_t in_use = 0;
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

RegexSearch::RegexSearch(const RegexSplitter& splitter, std::string_view text, RegexScratch& scratch)
    : code_(splitter.code_.get()), text_(text), subject_(text), scratch_(scratch.data_.get()) {
  const auto beyond_ascii = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
  translated_ = code_->alphabet && std::any_of(text.begin(), text.end(), beyond_ascii);
  if (!translated_) return;
  if (scratch_->in_use == scratch_->translations.size()) scratch_->translations.emplace_back();
  std::string& translation = scratch_->translations[scratch_->in_use++];
  code_->alphabet->translate(text, translation);
  subject_ = translation;
}

RegexSearch::~RegexSearch() {
  if (translated_) --scratch_->in_use;
}

/// The bytes of `units` code points of the text starting at `begin`.
std::size_t RegexSearch::bytes_of(std::size_t begin, std::size_t units) const {
  if (!translated_) return units;
  std::size_t at = begin;
  for (; units > 0; --units) at += code_point_at(text_, at).size;
  return at - begin;
}

std::optional<RegexSearch::Match> RegexSearch::next() {
  if (unit_ == subject_.size()) return std::nullopt;
  // Backtracking through one long run (e.g. of blanks) is linear and must not count as excessive backtracking.
  constexpr std::size_t steps = 10'000'000, most = 0xFFFF'FFFF;
  pcre2_set_match_limit(scratch_->context, static_cast<std::uint32_t>(std::min(steps + 8 * subject_.size(), most)));
  const int rc = pcre2_match(code_->regex, reinterpret_cast<PCRE2_SPTR>(subject_.data()), subject_.size(), unit_,
                             PCRE2_NO_UTF_CHECK, scratch_->match, scratch_->context);
  if (rc == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (rc < 0)
    throw Error(concat("the tokenizer's regular expression failed (PCRE2 error ", rc, ") at byte ", at_, " of ",
                       text_.size(), " bytes of text"));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch_->match);
  TESSERA_CHECK(bounds[0] < bounds[1] && bounds[0] >= unit_, "match [", bounds[0], ", ", bounds[1], ") from ", unit_);
  Match match{};
  match.begin = at_ + bytes_of(at_, bounds[0] - unit_);
  match.end = at_ = match.begin + bytes_of(match.begin, bounds[1] - bounds[0]);
  unit_ = bounds[1];
  return match;
}

}  // namespace tessera::text
