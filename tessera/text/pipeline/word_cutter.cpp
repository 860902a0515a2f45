#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/bpe/gpt2_split.h>
#include <tessera/text/pipeline/word_cutter.h>
#include <tessera/text/unicode/script.h>
#include <tessera/text/wordpiece/bert_characters.h>

#include <optional>

namespace tessera::text {
namespace {

template <class Piece>
void cut_piece(const SplitStep& step, std::string_view text, bool /*at_start*/, RegexScratch& scratch,
               const Piece& piece) {
  cut_text(step, text, scratch, piece);
}

/// The text with its blanks replaced and, if `prefixed`, one more replacement before it.
std::string without_blanks(std::string_view text, std::string_view replacement, bool prefixed) {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + replacement.size());
  if (prefixed) out += replacement;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(' ', done)) != std::string_view::npos; done = at + 1)
    out.append(text, done, at - done).append(replacement);
  return out.append(text, done);
}

template <class Piece>
void cut_piece(const MetaspaceStep& step, std::string_view text, bool at_start, RegexScratch& /*scratch*/,
               const Piece& piece) {
  using Prepend = MetaspaceStep::Prepend;
  const bool begins_so = text.starts_with(' ') || text.starts_with(step.replacement);
  const bool wanted = step.prepend == Prepend::always || (step.prepend == Prepend::first && at_start);
  const std::string changed = without_blanks(text, step.replacement, wanted && !begins_so);
  const std::string_view rest = changed;
  if (!step.split) return piece(rest);
  for (std::size_t at = 0; at < rest.size();) {
    const std::size_t end = std::min(rest.find(step.replacement, at + 1), rest.size());
    piece(rest.substr(at, end - at));
    at = end;
  }
}

template <class Piece>
void cut_piece(const ByteLevelStep& step, std::string_view text, bool /*at_start*/, RegexScratch& /*scratch*/,
               const Piece& piece) {
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  const std::string prefixed = step.add_prefix_space && !text.starts_with(' ') ? " " + std::string(text) : "";
  if (!prefixed.empty()) text = prefixed;
  if (!step.gpt2_pattern) {
    const std::string spelt = alphabet.spell(text);
    return piece(std::string_view(spelt));
  }
  const Gpt2Splitter splitter;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = splitter.word_end(text, at);
    const std::string spelt = alphabet.spell(text.substr(at, end - at));
    piece(std::string_view(spelt));
    at = end;
  }
}

template <class Piece>
void cut_piece(const WordRunsStep& /*step*/, std::string_view text, bool /*at_start*/, RegexScratch& /*scratch*/,
               const Piece& piece) {
  static const CodeSet& words = *find_property("word");
  enum class Kind { space, word, other };
  const auto kind_of = [](std::uint32_t code) {
    if (contains(words, code)) return Kind::word;
    return BertCharacters::get().of(code).flags & BertCharacters::separator ? Kind::space : Kind::other;
  };
  std::size_t begin = 0;
  Kind last = Kind::space;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const Kind kind = kind_of(c.value);
    if (kind != last) {
      if (last != Kind::space) piece(text.substr(begin, at - begin));
      begin = at;
      last = kind;
    }
    at += c.size;
  }
  if (last != Kind::space) piece(text.substr(begin));
}

template <class Piece>
void cut_piece(const FixedLengthStep& step, std::string_view text, bool /*at_start*/, RegexScratch& /*scratch*/,
               const Piece& piece) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    for (std::size_t i = 0; i < step.length && end < text.size(); ++i) end += code_point_at(text, end).size;
    piece(text.substr(at, end - at));
    at = end;
  }
}

/// As in Hugging Face, everything before the first character that has a script of its own is dropped.
template <class Piece>
void cut_piece(const ScriptsStep& /*step*/, std::string_view text, bool /*at_start*/, RegexScratch& /*scratch*/,
               const Piece& piece) {
  std::optional<std::size_t> begin;
  std::uint8_t last = script_none;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const std::uint8_t script = script_class(c.value);
    if (script != script_any && script != last) {
      if (begin) piece(text.substr(*begin, at - *begin));
      begin = at;
    }
    if (script != script_any) last = script;
    at += c.size;
  }
  if (begin) piece(text.substr(*begin));
}

}  // namespace

void WordCutter::cut(std::string_view text, bool at_start, std::size_t number, RegexScratch& scratch,
                     const Word& word) const {
  if (number == steps.size()) return word(text, at_start);
  bool first = true;  // only the first piece can begin at the start of the text
  const auto piece = [&](std::string_view found) {
    const bool inside = found.data() > text.data() && found.data() < text.data() + text.size();
    const bool starts = at_start && first && !inside;
    first = false;
    if (!found.empty()) cut(found, starts, number + 1, scratch, word);
  };
  std::visit([&](const auto& step) { cut_piece(step, text, at_start, scratch, piece); }, steps[number]);
}

}  // namespace tessera::text
