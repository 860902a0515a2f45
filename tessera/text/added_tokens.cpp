#include <tessera/base/error.h>
#include <tessera/text/added_tokens.h>
#include <tessera/text/unicode/char_class.h>
#include <tessera/text/unicode/code_set.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>

namespace tessera::text {

namespace {

bool is_space(std::string_view text, std::size_t at, std::size_t& size) {
  const CodePoint c = code_point_at(text, at);
  size = c.size;
  return CharClasses::get().of(c.value) == CharClass::space;
}

/// Returns the start of the run of blanks that ends at `at`.
std::size_t blanks_begin(std::string_view text, std::size_t at) {
  while (at > 0) {
    std::size_t before = at - 1, size;
    while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
    if (!is_space(text, before, size)) break;
    at = before;
  }
  return at;
}

std::size_t blanks_end(std::string_view text, std::size_t at) {
  std::size_t size;
  while (at < text.size() && is_space(text, at, size)) at += size;
  return at;
}

/// \w of the Rust regex crate.
bool is_word(std::uint32_t code_point) {
  static const CodeSet& words = *find_property("word");
  return contains(words, code_point);
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (end < text.size() && is_word(code_point_at(text, end).value)) return false;
  if (begin == 0) return true;
  std::size_t before = begin - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  return !is_word(code_point_at(text, before).value);
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer) {
  std::string storage;
  for (const AddedToken& token : tokens) {
    if (token.normalized)
      second_.add(std::string(normalizer.apply(token.content, storage)), token);
    else
      first_.add(token.content, token);
  }
}

void AddedTokens::Matcher::add(const std::string& content, const AddedToken& token) {
  if (content.empty())
    throw InputError(concat("the added token ", token.id, " \"", token.content, "\" is empty after normalization"));
  const auto [known, is_new] = tokens_.emplace(content, Flags{token.id, token.single_word, token.lstrip, token.rstrip});
  if (!is_new)
    throw InputError(concat("the added tokens ", known->second.id, " and ", token.id, " have the same content \"",
                            content, "\"", content == token.content ? "" : " after normalization"));
  const auto first = static_cast<unsigned char>(content.front());
  is_first_[first] = true;
  std::vector<std::size_t>& sizes = sizes_[first];
  const auto at = std::lower_bound(sizes.begin(), sizes.end(), content.size(), std::greater<>());
  if (at == sizes.end() || *at != content.size()) sizes.insert(at, content.size());
}

std::size_t AddedTokens::Matcher::longest(std::string_view text, std::size_t at, const Flags** flags) const {
  for (const std::size_t size : sizes_[static_cast<unsigned char>(text[at])]) {
    if (size > text.size() - at) continue;
    const auto found = tokens_.find(text.substr(at, size));
    if (found == tokens_.end()) continue;
    *flags = &found->second;
    return size;
  }
  return 0;
}

void AddedTokens::Matcher::split(std::string_view text, std::vector<Segment>& out) const {
  std::size_t done = 0;  // end of the last segment, which may be beyond `at` because of absorbed blanks
  for (std::size_t at = 0; at < text.size();) {
    const Flags* token = nullptr;
    const std::size_t size = is_first_[static_cast<unsigned char>(text[at])] ? longest(text, at, &token) : 0;
    if (size == 0) {
      ++at;
      continue;
    }
    const std::size_t match = at, match_end = at + size;
    at = match_end;
    if (token->single_word && !stands_alone(text, match, match_end)) continue;
    const std::size_t begin = token->lstrip ? std::max(blanks_begin(text, match), done) : match;
    const std::size_t end = token->rstrip ? blanks_end(text, match_end) : match_end;
    if (done < begin) out.push_back({text.substr(done, begin - done)});
    out.push_back({text.substr(match, size), token->id});
    done = end;
  }
  if (done < text.size()) out.push_back({text.substr(done)});
}

std::vector<Segment> AddedTokens::split(std::string_view text, const Normalizer& normalizer,
                                        std::deque<std::string>& storage) const {
  std::vector<Segment> once;
  first_.split(text, once);
  if (!once.empty()) once.front().at_start = once.front().text.data() == text.data();
  if (second_.empty() && normalizer.steps.empty()) return once;
  std::vector<Segment> twice;
  for (const Segment& segment : once) {
    if (segment.id >= 0) {
      twice.push_back(segment);
      continue;
    }
    std::string normal;
    bool front_kept = true;
    std::string_view plain = normalizer.apply(segment.text, normal, segment.at_start ? &front_kept : nullptr);
    if (plain.data() == normal.data()) plain = storage.emplace_back(std::move(normal));
    const std::size_t before = twice.size();
    second_.split(plain, twice);
    if (before < twice.size() && segment.at_start && front_kept)
      twice[before].at_start = twice[before].text.data() == plain.data();
  }
  return twice;
}

}  // namespace tessera::text
