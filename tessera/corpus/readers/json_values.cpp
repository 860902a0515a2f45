#include <algorithm>
#include <array>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/json/json_line.h>
#include <tessera/corpus/readers/json_values.h>
#include <tessera/corpus/readers/readers.h>

namespace tessera::corpus {
namespace {

constexpr std::string_view any_blank = " \t\r\n";
constexpr std::string_view ends_of_words = " \t\r\n,]}[{:\"";  // characters that end a number, true, false, null
constexpr std::array<std::string_view, 2> member_names = {"\"data\"", "\"rows\""};

}  // namespace

JsonValues::JsonValues(Window window)
    : window_(std::move(window)), name_(std::make_shared<const std::string>(window_.name())) {}

std::optional<Value> JsonValues::next() {
  if (!complaint_.empty()) throw InputError(complaint_);
  if (state_ == State::begin) begin();
  if (state_ == State::values) {
    if (!peek()) state_ = State::end;
  } else if (state_ == State::items) {
    const auto c = peek();
    if (c == ']') {
      pass(1);
      close();
    } else if (!first_) {
      if (c != ',') fail("expected ',' or ']' after an item of the array");
      pass(1);
      if (peek() == ']') fail("expected another item after ','");
    }
  }
  if (state_ == State::end) return std::nullopt;
  first_ = false;
  return take(value_size(0));
}

/// Determines the form of the file.
void JsonValues::begin() {
  while (window_.text().size() < byte_order_mark.size() && window_.more()) {
  }
  if (window_.text().starts_with(byte_order_mark)) window_.drop(byte_order_mark.size());
  const auto c = peek();
  state_ = State::values;
  if (c == '[') {
    pass(1);
    state_ = State::items;
  } else if (c == '{' && enter_member()) {
    state_ = State::items;
    in_member_ = true;
  }
}

/// Examines the first object: if a member named "data" or "rows" is an array of objects, advances to its first item;
/// otherwise does not advance.
bool JsonValues::enter_member() {
  const auto behind_blanks = [&](std::size_t at) {
    while (byte_at(at) && any_blank.find(window_.text()[at]) != std::string_view::npos) ++at;
    return at;
  };
  const auto is = [&](std::size_t at, char c) { return byte_at(at) && window_.text()[at] == c; };
  for (std::size_t at = behind_blanks(1); is(at, '"');) {
    const std::size_t key = at;
    const std::size_t key_size = string_size(key);
    at = behind_blanks(key + key_size);
    if (!is(at, ':')) return false;
    at = behind_blanks(at + 1);
    const std::string_view name = window_.text().substr(key, key_size);
    if (is(at, '[') && std::find(member_names.begin(), member_names.end(), name) != member_names.end()) {
      const std::size_t item = behind_blanks(at + 1);
      if (is(item, '{')) {
        pass(at + 1);
        return true;
      }
    }
    at = behind_blanks(at + value_size(at));
    if (!is(at, ',')) return false;
    at = behind_blanks(at + 1);
  }
  return false;
}

/// Consumes what follows the array: the end of the file, or the rest of the enclosing object.
void JsonValues::close() {
  state_ = State::end;
  while (in_member_) {
    const auto c = peek();
    if (c == '}') {
      pass(1);
      in_member_ = false;
    } else if (c == ',') {
      pass(1);
      if (peek() != '"') fail("expected a key in double quotes");
      pass(string_size(0));
      if (peek() != ':') fail("expected ':' after a key");
      pass(1);
      peek();
      const std::size_t size = value_size(0);
      if (size == 0) fail("expected a value");
      pass(size);
    } else {
      fail("expected ',' or '}' in an object");
    }
  }
  if (peek()) fail("expected the end of the file after the array");
}

std::optional<char> JsonValues::peek() {
  for (;;) {
    const std::string_view text = window_.text();
    const std::size_t blanks = std::min(text.find_first_not_of(any_blank), text.size());
    pass(blanks);
    if (!window_.text().empty()) return window_.text()[0];
    if (!window_.more()) return std::nullopt;
  }
}

/// Drops bytes and counts their lines.
void JsonValues::pass(std::size_t bytes) {
  const std::string_view text = window_.text().substr(0, bytes);
  const auto feeds = std::count(text.begin(), text.end(), '\n');
  if (feeds == 0) {
    column_ += static_cast<int>(bytes);
  } else {
    line_ += static_cast<int>(feeds);
    column_ = static_cast<int>(bytes - text.rfind('\n'));
  }
  window_.drop(bytes);
}

bool JsonValues::byte_at(std::size_t at) {
  while (window_.text().size() <= at)
    if (!window_.more()) return false;
  return true;
}

/// Returns the size of the string whose opening quote is at `from`.
std::size_t JsonValues::string_size(std::size_t from) {
  for (std::size_t at = from + 1;;) {
    const std::size_t found = window_.text().find_first_of("\"\\", at);
    if (found == std::string_view::npos) {
      at = window_.text().size();
      if (!window_.more()) return window_.text().size() - from;  // the parser reports the error
    } else if (window_.text()[found] == '"') {
      return found + 1 - from;
    } else {
      at = found + 2;
      if (!byte_at(at)) return window_.text().size() - from;
    }
  }
}

/// Returns the size of the value that begins at `from`; errors inside it are found when it is parsed.
std::size_t JsonValues::value_size(std::size_t from) {
  if (!byte_at(from)) return 0;
  const char first = window_.text()[from];
  if (first == '"') return string_size(from);
  if (first != '{' && first != '[') {
    std::size_t at = from;
    while (byte_at(at) && ends_of_words.find(window_.text()[at]) == std::string_view::npos) ++at;
    return at - from;
  }
  std::size_t depth = 0;
  for (std::size_t at = from;;) {
    const std::size_t found = window_.text().find_first_of("\"{}[]", at);
    if (found == std::string_view::npos) {
      at = window_.text().size();
      if (!window_.more()) return window_.text().size() - from;
      continue;
    }
    const char c = window_.text()[found];
    at = found + 1;
    if (c == '"') {
      at = found + string_size(found);
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (--depth == 0) {
      return at - from;
    }
  }
}

/// Parses the value at the start of the window.
Value JsonValues::take(std::size_t size) {
  if (size == 0) fail("expected a value");
  std::optional<InputError> error;
  Value value;
  try {
    value = parse_json_line(window_.text().substr(0, size), name_, line_, column_);
    value.members();  // throws unless it is an object
  } catch (const InputError& wrong) {
    error = wrong;
  }
  pass(size);
  if (error) throw *error;
  return value;
}

void JsonValues::fail(const std::string& what) {
  const auto c = peek();
  const SourcePos here{name_, line_, column_};
  const bool shows = c && static_cast<unsigned char>(*c) >= 0x20;
  complaint_ = concat(here.str(), ": ", what, ", found ",
                      !c      ? "the end of the file"
                      : shows ? concat("'", *c, "'")
                              : concat("control character ", static_cast<int>(*c)));
  throw InputError(complaint_);
}

namespace {

class JsonFileReader : public RecordReader {
 public:
  explicit JsonFileReader(Window bytes) : values_(std::move(bytes)) {}
  std::optional<Value> next() override { return values_.next(); }
  std::uint64_t bytes_read() const override { return values_.used(); }

 private:
  JsonValues values_;
};

}  // namespace

std::unique_ptr<RecordReader> read_json_values(Window bytes) {
  return std::make_unique<JsonFileReader>(std::move(bytes));
}

}  // namespace tessera::corpus
