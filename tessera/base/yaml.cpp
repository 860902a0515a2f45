// YAML through yaml-cpp's event parser, made strict: yaml-cpp itself accepts duplicate keys and ignores merge keys.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/key_place.h>
#include <tessera/base/yaml.h>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <vector>

namespace tessera {
namespace {

constexpr int max_depth = 256;

/// YAML 1.2 core schema for plain scalars, decimal numbers only: YAML readers interpret "010" and "0o10" differently,
/// so they are refused.
Value resolve_plain(const std::string& text, const SourcePos& where) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return {};
  if (text == "true" || text == "True" || text == "TRUE") return Value::of(true);
  if (text == "false" || text == "False" || text == "FALSE") return Value::of(false);
  const bool negative = text[0] == '-';
  const std::string_view digits = std::string_view(text).substr(negative || text[0] == '+' ? 1 : 0);
  const auto starts_as_number = [&] {
    return !digits.empty() && ((digits[0] >= '0' && digits[0] <= '9') || digits[0] == '.');
  };
  if (!starts_as_number()) return Value::of(text);
  const bool all_digits = digits.find_first_not_of("0123456789") == std::string_view::npos;
  if ((all_digits && digits.size() > 1 && digits[0] == '0') || (digits.starts_with("0o") && digits.size() > 2))
    throw InputError(concat(where.str(), ": '", text,
                            "' looks like an octal number, which YAML readers disagree about; write it in ",
                            "decimal, or in quotes for text"));
  if (digits == ".inf" || digits == ".Inf" || digits == ".INF") return Value::of(negative ? -HUGE_VAL : HUGE_VAL);
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return Value::of(std::numeric_limits<double>::quiet_NaN());
  const std::string number = concat(negative ? "-" : "", digits);
  if (const auto integer = parse_int(number)) return Value::of(*integer);
  if (digits.starts_with("0x")) {
    std::int64_t hex = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), hex, 16);
    if (digits.size() == text.size() && digits.size() > 2 && digits[2] != '-' && error == std::errc() &&
        end == text.data() + text.size())
      return Value::of(hex);
    return Value::of(text);
  }
  if (const auto real = parse_real(number)) return Value::of(*real);
  return Value::of(text);
}

class Builder final : public YAML::EventHandler {
 public:
  Builder(std::shared_ptr<const std::string> file, std::string_view text, std::vector<std::string>* repeated)
      : file_(std::move(file)), text_(text), repeated_(repeated) {}

  Value take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, anchor, Value()); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    // yaml-cpp gives "?" for plain scalars and "!" for quoted ones
    if (tag != "?" && tag != "!" && !tag.empty() && tag != "tag:yaml.org,2002:str")
      throw InputError(concat(at(mark).str(), ": the tag ", tag, " is not supported"));
    if (tag == "!") refuse_keys_inside(mark);
    add(mark, anchor, tag == "?" || tag.empty() ? resolve_plain(text, at(mark)) : Value::of(text), text);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw InputError(concat(at(mark).str(), ": an alias inside its own anchor"));
    made_ += found->second.size;  // a chain of aliases of aliases grows exponentially
    if (made_ > 1000000) throw InputError(concat(at(mark).str(), ": aliases expand to more than 1000000 values"));
    place(at(mark), found->second.value, "");
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, Value::make_array());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, Value::make_object());
  }
  void OnMapEnd() override { close(); }

 private:
  struct Anchored {
    Value value;
    std::size_t size = 1;  ///< number of values in it, with aliases expanded
  };
  struct Open {
    Value value;
    YAML::anchor_t anchor;
    bool has_key = false;
    std::string key;
    SourcePos key_place;
    std::size_t first_id;  ///< values made before this one: the size of an anchor's subtree
  };

  SourcePos at(const YAML::Mark& mark) const { return {file_, mark.line + 1, mark.column + 1}; }

  /// Throws if a quoted text contains lines that begin with keys: an unclosed quote swallows the lines up to the next
  /// quote.
  void refuse_keys_inside(const YAML::Mark& mark) const {
    std::size_t i = 0;
    for (int line = 0; line < mark.line && i < text_.size(); ++line)
      i = std::min(text_.find('\n', i), text_.size() - 1) + 1;
    i += static_cast<std::size_t>(mark.column);
    if (i >= text_.size() || (text_[i] != '\'' && text_[i] != '"')) return;
    const char quote = text_[i];
    while (++i < text_.size()) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        if (quote == '"' || text_.substr(i + 1, 1) != "'") return;
        ++i;  // '' is a quote inside
      } else if (text_[i] == '\n' && begins_with_key(text_.substr(i + 1))) {
        throw InputError(concat(at(mark).str(), ": this quote ", quote,
                                " is not closed on its line, so the lines after it become part of the text; close it"));
      }
    }
  }

  static bool begins_with_key(std::string_view line) {
    line = line.substr(0, line.find('\n'));
    line.remove_prefix(std::min(line.find_first_not_of(" -"), line.size()));
    const std::size_t end = line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
    return end != std::string_view::npos && end > 0 && line[end] == ':' &&
           (end + 1 == line.size() || line[end + 1] == ' ' || line[end + 1] == '\r');
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, Value value, const std::string& key_text = "") {
    value.set_where(at(mark));
    ++made_;
    if (anchor != 0) anchors_.insert_or_assign(anchor, Anchored{value, 1});
    place(at(mark), std::move(value), key_text);
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, Value value) {
    if (stack_.size() >= max_depth) throw InputError(concat(at(mark).str(), ": nested deeper than ", max_depth));
    value.set_where(at(mark));
    stack_.push_back({std::move(value), anchor, false, {}, {}, made_});
    ++made_;
  }

  void close() {
    Open done = std::move(stack_.back());
    stack_.pop_back();
    if (done.anchor != 0) anchors_.insert_or_assign(done.anchor, Anchored{done.value, made_ - done.first_id});
    const SourcePos where = done.value.where();
    place(where, std::move(done.value), "");
  }

  void place(const SourcePos& where, Value value, const std::string& key_text) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = stack_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else if (!parent.has_key) {
      if (value.is_array() || value.is_object() || value.is_null())
        throw InputError(concat(where.str(), ": a key must be a word or a number"));
      parent.key = value.is_string() ? value.as_string() : key_text;
      if (parent.key == "<<" && repeated_ == nullptr)
        throw InputError(concat(where.str(), ": merge keys (<<) are not supported; write the keys out"));
      if (const Value* first = parent.value.find(parent.key)) {
        const std::string twice =
            concat(where.str(), ": the key \"", parent.key, "\" appears twice (first at ", first->where().str(), ")");
        if (repeated_ == nullptr) throw InputError(concat(twice, "; keep one of them"));
        const bool merged = first->where().line < parent.value.where().line;
        if (!merged) repeated_->push_back(concat(twice, "; this one counts"));
      }
      parent.has_key = true;
      parent.key_place = where;
    } else if (parent.key == "<<" && value.is_object()) {
      for (const auto& [key, member] : value.members())
        if (parent.value.find(key) == nullptr) parent.value.set(key, member);
      parent.has_key = false;
    } else {
      parent.value.set(std::move(parent.key), at_key(std::move(value), parent.key_place));
      parent.has_key = false;
    }
  }

  std::shared_ptr<const std::string> file_;
  std::string_view text_;
  std::vector<std::string>* repeated_;
  Value root_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t made_ = 0;  ///< number of values so far, with aliases expanded
};

}  // namespace

Value parse_yaml(std::string_view text, const std::string& name, std::vector<std::string>* repeated) {
  if (!is_utf8(text)) throw InputError(concat(name, ": not valid UTF-8"));
  auto file = std::make_shared<const std::string>(name);
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    Builder builder(file, text, repeated);
    if (!parser.HandleNextDocument(builder)) return {};
    Builder second(file, text, repeated);
    if (parser.HandleNextDocument(second)) throw InputError(concat(name, ": contains more than one YAML document"));
    return builder.take();
  } catch (const YAML::Exception& e) {
    const SourcePos where =
        e.mark.is_null() ? SourcePos{file, 0, 0} : SourcePos{file, e.mark.line + 1, e.mark.column + 1};
    throw InputError(
        concat(where.str(), ": ", e.msg, "; check the indentation (blanks, no tabs), brackets and quotes up to here"));
  }
}

Value parse_yaml(std::string_view text, const std::string& name) { return parse_yaml(text, name, nullptr); }

Value read_yaml(const std::string& path) { return parse_yaml(read_file(path, 16u << 20), path); }

}  // namespace tessera
