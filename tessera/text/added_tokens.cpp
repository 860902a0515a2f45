#include <tessera/text/added_tokens.h>
#include <tessera/text/char_class.h>
#include <tessera/text/utf8.h>
#include <algorithm>

namespace tessera::text {

namespace {

bool is_space(std::string_view text, std::size_t at, std::size_t& size) {
  const CodePoint c = code_point_at(text, at);
  size = c.size;
  return CharClasses::get().of(c.value) == CharClass::space;
}

/// Where the blanks that end at `at` begin.
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

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) (token.normalized ? second_ : first_).tokens.push_back(token);
  first_.build();
  second_.build();
}

void AddedTokens::Matcher::build() {
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto first = static_cast<unsigned char>(tokens[i].content.front());
    begins[first].push_back(static_cast<std::uint16_t>(i));
    is_first[first] = true;
  }
}

void AddedTokens::Matcher::split(std::string_view text, std::vector<Segment>& out) const {
  std::size_t done = 0;  // end of the last segment, which stripped blanks may have pushed beyond `at`
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const AddedToken* found = nullptr;
    if (is_first[first]) {
      for (const std::uint16_t i : begins[first]) {
        if (text.substr(at).starts_with(tokens[i].content)) {
          found = &tokens[i];
          break;
        }
      }
    }
    if (!found) {
      ++at;
      continue;
    }
    const std::size_t match_end = at + found->content.size();
    const std::size_t begin = found->lstrip ? std::max(blanks_begin(text, at), done) : at;
    const std::size_t end = found->rstrip ? blanks_end(text, match_end) : match_end;
    if (done < begin) out.push_back({text.substr(done, begin - done)});
    out.push_back({text.substr(at, match_end - at), found->id});
    done = end;
    at = match_end;
  }
  if (done < text.size()) out.push_back({text.substr(done)});
}

std::vector<Segment> AddedTokens::split(std::string_view text) const {
  std::vector<Segment> once;
  first_.split(text, once);
  if (second_.tokens.empty()) return once;
  std::vector<Segment> twice;
  for (const Segment& segment : once) {
    if (segment.id >= 0) {
      twice.push_back(segment);
    } else {
      second_.split(segment.text, twice);
    }
  }
  return twice;
}

}  // namespace tessera::text
