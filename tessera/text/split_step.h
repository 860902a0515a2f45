#pragma once
/// \file
/// One step that cuts text at matches of a pattern: Split, Digits, Punctuation, ... of a tokenizer.json.

#include <tessera/text/bpe/regex_split.h>
#include <tessera/text/unicode/code_set.h>
#include <tessera/text/unicode/utf8.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace tessera::text {

/// How the matches of a pattern and the text between them are treated (Hugging Face's SplitDelimiterBehavior).
enum class SplitBehavior {
  isolated,              ///< each match and each stretch between matches is a piece
  removed,               ///< matches are dropped
  contiguous,            ///< adjacent matches form one piece
  merged_with_previous,  ///< a match is appended to the preceding piece, unless that piece ends with a match
  merged_with_next       ///< a match is prepended to the following piece, unless that piece is a match
};

/// Matches the numbers that Digits cuts out: char::is_numeric of Rust's library.
struct DigitsPattern {};

/// Whether a code point is a match by itself.
using CodePredicate = bool (*)(std::uint32_t code_point);

struct SplitStep {
  std::variant<RegexSplitter, std::string, DigitsPattern, CodePredicate> pattern;  ///< std::string: literally
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< swaps the roles of matches and the text between them
};

/// Groups a stream of matches and the pieces between them by a SplitBehavior. Together they cover a text in order.
template <class Emit>
class SplitJoiner {
 public:
  SplitJoiner(SplitBehavior behavior, bool invert, Emit emit) : behavior_(behavior), invert_(invert), emit_(emit) {}

  void add(std::string_view piece, bool is_match) {
    is_match ^= invert_;
    switch (behavior_) {
      case SplitBehavior::isolated:
        return emit_(piece);
      case SplitBehavior::removed:
        if (!is_match) emit_(piece);
        return;
      case SplitBehavior::contiguous:
        return join_or_begin(piece, is_match, is_match == previous_);
      case SplitBehavior::merged_with_previous:
        return join_or_begin(piece, is_match, is_match && !previous_);
      case SplitBehavior::merged_with_next:
        return join_or_begin(piece, is_match, previous_ && !is_match);
    }
  }
  void finish() {
    if (!held_.empty()) emit_(held_);
  }

 private:
  void join_or_begin(std::string_view piece, bool is_match, bool joins) {
    if (joins && !held_.empty()) {
      held_ = {held_.data(), held_.size() + piece.size()};
    } else {
      finish();
      held_ = piece;
    }
    previous_ = is_match;
  }

  SplitBehavior behavior_;
  bool invert_;
  Emit emit_;
  std::string_view held_;
  bool previous_ = false;
};

/// Calls found(begin, end) for each number of well-formed UTF-8.
template <class Found>
void for_each_digit(std::string_view text, const Found& found) {
  static const CodeSet& digits = *find_property("digit");
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      if (byte >= '0' && byte <= '9') found(at, at + 1);
      ++at;
      continue;
    }
    const CodePoint c = code_point_at(text, at);
    if (contains(digits, c.value)) found(at, at + c.size);
    at += c.size;
  }
}

/// Calls piece(std::string_view) for each piece of well-formed UTF-8, in order. Pieces are not empty.
template <class Piece>
void cut_text(const SplitStep& step, std::string_view text, RegexScratch& scratch, Piece&& piece) {
  SplitJoiner joiner(step.behavior, step.invert, [&](std::string_view found) { piece(found); });
  std::size_t done = 0;
  const auto match = [&](std::size_t begin, std::size_t end) {
    if (done < begin) joiner.add(text.substr(done, begin - done), false);
    joiner.add(text.substr(begin, end - begin), true);
    done = end;
  };
  if (const auto* regex = std::get_if<RegexSplitter>(&step.pattern)) {
    RegexSearch search(*regex, text, scratch);
    while (const auto found = search.next()) match(found->begin, found->end);
  } else if (const auto* literal = std::get_if<std::string>(&step.pattern)) {
    for (std::size_t at; (at = text.find(*literal, done)) != std::string_view::npos;) match(at, at + literal->size());
  } else if (const auto* is_match = std::get_if<CodePredicate>(&step.pattern)) {
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      if ((*is_match)(c.value)) match(at, at + c.size);
      at += c.size;
    }
  } else {
    for_each_digit(text, match);
  }
  if (done < text.size()) joiner.add(text.substr(done), false);
  joiner.finish();
}

}  // namespace tessera::text
