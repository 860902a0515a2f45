#include <tessera/storage/xml.h>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <utility>

namespace tessera::storage {
namespace {

class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) {}

  XmlElement document() {
    if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
    skip_between();
    XmlElement root = element(0);
    skip_between();
    if (at_ != text_.size()) refuse("text behind the end");
    return root;
  }

 private:
  static constexpr int deepest = 16;
  static constexpr int most_elements = 200'000;

  [[noreturn]] void refuse(const char* what) const {
    throw Error(concat("the server's XML cannot be read: ", what, " at byte ", at_));
  }

  bool rest_starts_with(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  void skip_to_end_of(std::string_view word) {
    const std::size_t found = text_.find(word, at_);
    if (found == std::string_view::npos) refuse("something is not closed");
    at_ = found + word.size();
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  /// Blanks, comments, <?...?>: what may stand around the root.
  void skip_between() {
    for (;;) {
      skip_blanks();
      if (rest_starts_with("<?"))
        skip_to_end_of("?>");
      else if (rest_starts_with("<!--"))
        skip_to_end_of("-->");
      else
        return;
    }
  }

  std::string name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view(" \t\r\n/>=<&'\"").find(text_[at_]) == std::string_view::npos) ++at_;
    if (at_ == begin || at_ - begin > 200) refuse("a name is expected");
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// Up to '>' or "/>"; true when the element is empty.
  bool skip_attributes() {
    for (;;) {
      skip_blanks();
      if (rest_starts_with("/>")) return at_ += 2, true;
      if (rest_starts_with(">")) return at_ += 1, false;
      name();
      skip_blanks();
      if (!rest_starts_with("=")) refuse("'=' is expected");
      ++at_;
      skip_blanks();
      if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\'')) refuse("a quote is expected");
      const char quote = text_[at_++];
      skip_to_end_of(std::string_view(&quote, 1));
    }
  }

  void append_code(std::string& out, std::string_view digits, int base) const {
    std::uint32_t code = 0;
    if (digits.empty() || digits.size() > 8) refuse("a character that is none");
    for (const char c : digits) {
      const int value = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      if (value >= base) refuse("a character that is none");
      code = code * static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(value);
      if (code > 0x10FFFF) refuse("a character that is none");
    }
    if (code == 0 || (code >= 0xD800 && code < 0xE000)) refuse("a character that is none");
    const auto put = [&](std::uint32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
      put(0xC0 | (code >> 6));
    } else {
      if (code < 0x10000) {
        put(0xE0 | (code >> 12));
      } else {
        put(0xF0 | (code >> 18));
        put(0x80 | ((code >> 12) & 0x3F));
      }
      put(0x80 | ((code >> 6) & 0x3F));
    }
    put(0x80 | (code & 0x3F));
  }

  void append_entity(std::string& out) {
    const std::size_t end = text_.find(';', at_);
    if (end == std::string_view::npos || end - at_ > 12) refuse("an entity is not closed");
    const std::string_view word = text_.substr(at_ + 1, end - at_ - 1);
    static constexpr std::pair<std::string_view, char> known[] = {
        {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    bool found = false;
    for (const auto& [entity, character] : known)
      if (word == entity) out += character, found = true;
    if (!found) {
      if (!word.starts_with('#')) refuse("an unknown entity");
      const bool hexadecimal = word.size() > 1 && (word[1] == 'x' || word[1] == 'X');
      append_code(out, word.substr(hexadecimal ? 2 : 1), hexadecimal ? 16 : 10);
    }
    at_ = end + 1;
  }

  XmlElement element(int depth) {
    if (depth > deepest) refuse("elements are too deep");
    if (++elements_ > most_elements) refuse("there are too many elements");
    if (!rest_starts_with("<") || rest_starts_with("<!")) refuse("an element is expected");
    ++at_;
    XmlElement out;
    out.name = name();
    if (skip_attributes()) return out;
    std::string text;
    for (;;) {
      if (at_ >= text_.size()) refuse("an element is not closed");
      if (text_[at_] == '&') {
        append_entity(text);
      } else if (text_[at_] != '<') {
        text += text_[at_++];
      } else if (rest_starts_with("<!--")) {
        skip_to_end_of("-->");
      } else if (rest_starts_with("</")) {
        at_ += 2;
        if (name() != out.name) refuse("another element is closed");
        skip_blanks();
        if (!rest_starts_with(">")) refuse("'>' is expected");
        ++at_;
        out.text = trim(text);
        return out;
      } else {
        out.children.push_back(element(depth + 1));
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int elements_ = 0;
};

}  // namespace

const XmlElement* XmlElement::find(std::string_view child) const {
  for (const XmlElement& element : children)
    if (element.name == child) return &element;
  return nullptr;
}

std::string_view XmlElement::text_of(std::string_view child) const {
  const XmlElement* const found = find(child);
  return found == nullptr ? std::string_view() : std::string_view(found->text);
}

XmlElement parse_xml(std::string_view text) { return XmlReader(text).document(); }

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace tessera::storage
