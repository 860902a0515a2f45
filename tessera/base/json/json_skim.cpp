#include <tessera/base/json/json_skim.h>

#include <tessera/base/text.h>

namespace tessera {
namespace {

/// Each function skips the construct that it is named after and returns false if the text does not have it.
class JsonSkimmer {
 public:
  explicit JsonSkimmer(std::string_view text) : text_(text) {}

  bool object(int depth, const std::function<void(std::string_view, std::string_view)>* member) {
    if (!take('{')) return false;
    blanks();
    if (take('}')) return true;
    do {
      blanks();
      const std::size_t name = at_;
      if (!string()) return false;
      const std::string_view named = text_.substr(name + 1, at_ - name - 2);
      blanks();
      if (!take(':')) return false;
      blanks();
      const std::size_t begin = at_;
      if (!value(depth + 1)) return false;
      if (member != nullptr) (*member)(named, text_.substr(begin, at_ - begin));
      blanks();
    } while (take(','));
    return take('}');
  }

  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool at_end() const { return at_ == text_.size(); }

 private:
  static constexpr int most_depth = 256;

  bool value(int depth) {
    if (at_end() || depth > most_depth) return false;
    switch (text_[at_]) {
      case '{':
        return object(depth, nullptr);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  bool array(int depth) {
    if (!take('[')) return false;
    blanks();
    if (take(']')) return true;
    do {
      blanks();
      if (!value(depth + 1)) return false;
      blanks();
    } while (take(','));
    return take(']');
  }

  bool string() {
    if (!take('"')) return false;
    while (!at_end()) {
      const auto c = static_cast<unsigned char>(text_[at_++]);
      if (c == '"') return true;
      if (c < 0x20) return false;
      if (c == '\\' && !escape()) return false;
    }
    return false;
  }

  bool escape() {
    if (at_end()) return false;
    const char c = text_[at_++];
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    const int high = hex4();
    if (high < 0xD800 || high > 0xDFFF) return high >= 0;
    if (high > 0xDBFF || text_.substr(at_, 2) != "\\u") return false;
    at_ += 2;
    const int low = hex4();
    return low >= 0xDC00 && low <= 0xDFFF;
  }

  /// The number; -1: malformed.
  int hex4() {
    int number = 0;
    for (int i = 0; i < 4; ++i) {
      if (at_end()) return -1;
      const char c = text_[at_++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return -1;
      number = 16 * number + digit;
    }
    return number;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  bool digits() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > begin;
  }

  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

bool skim_json_object(std::string_view text,
                      const std::function<void(std::string_view name, std::string_view value)>& member) {
  if (!is_utf8(text)) return false;
  JsonSkimmer skimmer(text);
  skimmer.blanks();
  if (!skimmer.object(0, &member)) return false;
  skimmer.blanks();
  return skimmer.at_end();
}

}  // namespace tessera
