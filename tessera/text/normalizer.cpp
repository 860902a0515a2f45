#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/normalizer.h>
#include <tessera/text/unicode/code_set.h>
#include <tessera/text/unicode/nmt.h>
#include <tessera/text/unicode/normal_form.h>
#include <tessera/text/wordpiece/bert_characters.h>

#include <tuple>
#include <utility>

namespace tessera::text {
namespace {

std::string_view strip_accents(std::string_view text, std::string& storage) {
  static const CodeSet& marks = *find_property("combining");
  return without(text, storage, [](std::uint32_t code) { return code >= 0x300 && contains(marks, code); });
}

std::string_view apply_step(PlainStep step, std::string_view text, std::string& storage, RegexScratch& /*scratch*/) {
  switch (step) {
    case PlainStep::nfc:
      return to_nfc(text, storage);
    case PlainStep::nfd:
      return to_nfd(text, storage);
    case PlainStep::nfkc:
      return to_nfkc(text, storage);
    case PlainStep::nfkd:
      return to_nfkd(text, storage);
    case PlainStep::clean_text:
      return clean_text(text, storage);
    case PlainStep::space_chinese:
      return space_chinese(text, storage);
    case PlainStep::remove_marks:
      return remove_marks(text, storage);
    case PlainStep::strip_accents:
      return strip_accents(text, storage);
    case PlainStep::lower_case:
      return to_lower_case(text, storage);
    case PlainStep::nmt:
      return to_nmt(text, storage);
    case PlainStep::byte_level:
      return storage = ByteAlphabet::get().spell(text);
  }
  return text;
}

/// Replaces matches; `next(from)` returns the next match at or after `from` as [begin, end); begin = npos: none.
template <class Next>
std::string_view replace_matches(std::string_view text, std::string& storage, std::string_view content,
                                 const Next& next) {
  std::size_t done = 0;
  for (auto [begin, end] = next(0); begin != std::string_view::npos; std::tie(begin, end) = next(done)) {
    if (done == 0) {
      storage.clear();
      storage.reserve(text.size() + text.size() / 2);
    }
    storage.append(text, done, begin - done).append(content);
    done = end;
  }
  if (done == 0) return text;
  return storage.append(text, done);
}

std::string_view apply_step(const ReplaceStep& step, std::string_view text, std::string& storage,
                            RegexScratch& scratch) {
  using Range = std::pair<std::size_t, std::size_t>;
  if (const auto* literal = std::get_if<std::string>(&step.pattern))
    return replace_matches(text, storage, step.content, [&](std::size_t from) {
      const std::size_t at = text.find(*literal, from);
      return Range(at, at + literal->size());
    });
  RegexSearch search(*std::get<std::shared_ptr<const RegexSplitter>>(step.pattern), text, scratch);
  return replace_matches(text, storage, step.content, [&](std::size_t /*from*/) {
    const auto found = search.next();
    return found ? Range(found->begin, found->end) : Range(std::string_view::npos, 0);
  });
}

std::string_view apply_step(const PrependStep& step, std::string_view text, std::string& storage,
                            RegexScratch& /*scratch*/) {
  if (text.empty() || step.content.empty()) return text;
  storage = step.content;
  return storage.append(text);
}

bool is_space(std::uint32_t code) { return BertCharacters::get().of(code).flags & BertCharacters::separator; }

std::string_view apply_step(const StripStep& step, std::string_view text, std::string& /*storage*/,
                            RegexScratch& /*scratch*/) {
  while (step.left && !text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!is_space(c.value)) break;
    text.remove_prefix(c.size);
  }
  while (step.right && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!is_space(code_point_at(text, last).value)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string_view apply_step(const CharsmapStep& step, std::string_view text, std::string& storage,
                            RegexScratch& /*scratch*/) {
  return step.map->apply(text, storage);
}

/// Whether a step removes the beginning of the text.
bool removes_front(const NormalizerStep& step, std::string_view text, RegexScratch& scratch) {
  if (text.empty()) return false;
  const std::string_view front = text.substr(0, code_point_at(text, 0).size);
  std::string storage;
  if (const auto* plain = std::get_if<PlainStep>(&step)) {
    const bool filters = *plain == PlainStep::clean_text || *plain == PlainStep::remove_marks ||
                         *plain == PlainStep::strip_accents || *plain == PlainStep::nmt;
    return filters && apply_step(*plain, front, storage, scratch).empty();
  }
  if (const auto* strip = std::get_if<StripStep>(&step)) return strip->left && is_space(code_point_at(text, 0).value);
  if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
    if (!replace->content.empty()) return false;
    if (const auto* literal = std::get_if<std::string>(&replace->pattern)) return text.starts_with(*literal);
    RegexSearch search(*std::get<std::shared_ptr<const RegexSplitter>>(replace->pattern), text, scratch);
    const auto found = search.next();
    return found && found->begin == 0;
  }
  return false;
}

}  // namespace

std::string_view Normalizer::apply(std::string_view text, std::string& storage, bool* front_kept) const {
  static thread_local RegexScratch scratch;
  if (front_kept) *front_kept = true;
  std::string other;
  bool owned = false;  // `text` is a part of `storage`
  for (const NormalizerStep& step : steps) {
    if (front_kept && *front_kept) *front_kept = !removes_front(step, text, scratch);
    const std::string_view done =
        std::visit([&](const auto& each) { return apply_step(each, text, other, scratch); }, step);
    if (done.data() == other.data()) {  // rewritten
      storage.swap(other);
      text = storage;
      owned = true;
    } else {  // `text` is unchanged, or reduced to a part of itself
      text = done;
    }
  }
  if (owned && text.size() != storage.size()) {
    storage = std::string(text);
    text = storage;
  }
  return text;
}

}  // namespace tessera::text
