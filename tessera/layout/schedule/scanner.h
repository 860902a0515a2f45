#pragma once
/// \file
/// Common parts of the schedule readers: pieces of text with their position, and the parsing of actions.

#include <tessera/layout/schedule/schedule.h>

#include <optional>
#include <string>
#include <string_view>

namespace tessera::layout::schedule {

/// A part of a line.
struct Piece {
  std::string_view text;
  std::size_t line = 1, column = 1;  ///< position of its first byte

  Piece from(std::size_t offset, std::size_t count = std::string_view::npos) const {
    return {text.substr(offset, count), line, column + offset};
  }
  Piece trimmed() const;  ///< without surrounding blanks and tabs
};

/// Throws InputError "FILE:LINE:COLUMN: REASON".
[[noreturn]] void fail(const std::string& file, const Piece& place, const std::string& reason);

/// The next line of a text, without its line end; nullopt at the end of the text.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  std::optional<Piece> next();

 private:
  std::string_view rest_;
  std::size_t line_ = 0;
};

/// Parses all of a piece such as "2F3". Throws InputError.
Action parse_action(const std::string& file, const Piece& piece);
/// Parses a whole number from 0 to `most`. Throws InputError; `what` names the number.
int parse_number(const std::string& file, const Piece& piece, int most, std::string_view what);
/// Formats a piece for a message: shortened, without control characters.
std::string quoted(std::string_view text);

/// Maximum number of stages, micro-batches and ranks in files.
inline constexpr int most_in_files = 1 << 20;

}  // namespace tessera::layout::schedule
