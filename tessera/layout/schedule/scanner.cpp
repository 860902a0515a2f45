#include <tessera/layout/schedule/scanner.h>

#include <algorithm>

#include <tessera/base/error.h>

namespace tessera::layout::schedule {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Piece Piece::trimmed() const {
  std::size_t begin = 0, end = text.size();
  while (begin < end && is_blank(text[begin])) ++begin;
  while (end > begin && is_blank(text[end - 1])) --end;
  return from(begin, end - begin);
}

void fail(const std::string& file, const Piece& place, const std::string& reason) {
  throw InputError(concat(file, ":", place.line, ":", place.column, ": ", reason));
}

std::string quoted(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 40)) shown += c >= ' ' && c <= '~' ? c : '?';
  return concat("'", shown, text.size() > 40 ? "...'" : "'");
}

std::optional<Piece> Lines::next() {
  if (rest_.empty()) return std::nullopt;
  const std::size_t end = rest_.find('\n');
  Piece line{rest_.substr(0, end), ++line_, 1};
  rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
  if (line.text.ends_with('\r')) line.text.remove_suffix(1);
  return line;
}

int parse_number(const std::string& file, const Piece& piece, int most, std::string_view what) {
  const auto value = parse_int(piece.text);
  if (!value || *value < 0 || *value > most || !is_digit(piece.text.front()))
    fail(file, piece, concat(quoted(piece.text), " is not a ", what, ": a whole number from 0 to ", most));
  return static_cast<int>(*value);
}

Action parse_action(const std::string& file, const Piece& piece) {
  const std::string_view text = piece.text;
  const auto first_not = [&](std::size_t from, auto is) {
    while (from < text.size() && is(text[from])) ++from;
    return from;
  };
  const std::size_t word = first_not(0, is_digit);
  const std::size_t number = first_not(word, [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
  const std::size_t end = first_not(number, is_digit);
  if (word == 0 || number == word || end != text.size())
    fail(file, piece, concat(quoted(text), " is not an action: stage, kind, micro-batch, as in 2F3 or 0SEND_F1"));
  const std::string_view name = text.substr(word, number - word);
  const auto kind = parse_word<Kind>(name);
  if (!kind) {
    std::vector<std::string> words;
    for (const std::string& one : words_of(Kind{}).words) {
      words.push_back(one);
      for (char& c : words.back()) c = c == '_' ? c : static_cast<char>(c - 'a' + 'A');
    }
    const auto near = name.size() < 3 ? std::nullopt : nearest(name.substr(0, 20), words);
    fail(file, piece.from(word),
         concat("unknown action ", quoted(name), "; ",
                near ? concat("did you mean ", *near, "?") : concat("the actions are ", join(words))));
  }
  Action action{*kind, false, parse_number(file, piece.from(0, word), most_in_files - 1, "stage"), -1};
  if (end > number && has_micro_batch(*kind))
    action.micro_batch = parse_number(file, piece.from(number), most_in_files - 1, "micro-batch");
  else if (end > number)
    fail(file, piece.from(number), concat(name, " is for a stage; no micro-batch may follow"));
  else if (has_micro_batch(*kind))
    fail(file, piece, concat(quoted(text), " lacks the micro-batch: ", text, "0 or another number"));
  return action;
}

}  // namespace tessera::layout::schedule
