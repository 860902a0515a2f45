#include <tessera/text/bpe/gpt2_split.h>
#include <tessera/text/bpe/word_count.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace tessera::text {
namespace {

bool is_blank_or_wide(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || static_cast<unsigned char>(c) >= 0x80; }

/// A position at or after `at` where a cut does not change any word: after a line feed with a non-blank ASCII character
/// on either side. Such a line feed is a word of its own.
std::size_t safe_cut(std::string_view text, std::size_t at) {
  for (std::size_t i = std::max<std::size_t>(at, 2); i < text.size(); ++i)
    if (text[i - 1] == '\n' && !is_blank_or_wide(text[i]) && !is_blank_or_wide(text[i - 2])) return i;
  return text.size();
}

void count_part(std::string_view text, WordCounts& counts, const std::function<void(std::int64_t)>& progress) {
  const Gpt2Splitter splitter;
  std::size_t reported = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = splitter.word_end(text, begin);
    ++counts[text.substr(begin, end - begin)];
    begin = end;
    if (begin - reported > (std::size_t{1} << 20)) {
      progress(static_cast<std::int64_t>(begin - reported));
      reported = begin;
    }
  }
  progress(static_cast<std::int64_t>(text.size() - reported));
}

}  // namespace

WordCounts count_words(std::string_view text, int threads, const std::function<void(std::int64_t)>& progress) {
  std::atomic<std::int64_t> done{0};
  const auto add = [&](std::int64_t bytes) {
    const std::int64_t now = done += bytes;
    if (progress) progress(now);
  };
  constexpr std::size_t least_part = std::size_t{1} << 18;  // below this, starting a thread costs more than it saves
  const std::size_t parts =
      std::clamp<std::size_t>(text.size() / least_part, 1, static_cast<std::size_t>(std::max(threads, 1)));
  std::vector<std::size_t> cuts = {0};
  for (std::size_t i = 1; i < parts; ++i)
    cuts.push_back(std::max(cuts.back(), safe_cut(text, text.size() / parts * i)));
  cuts.push_back(text.size());

  std::vector<WordCounts> counts(parts);
  std::vector<std::jthread> workers;
  for (std::size_t i = 1; i < parts; ++i)
    workers.emplace_back([&, i] { count_part(text.substr(cuts[i], cuts[i + 1] - cuts[i]), counts[i], add); });
  count_part(text.substr(0, cuts[1]), counts[0], add);
  workers.clear();  // joins
  for (std::size_t i = 1; i < parts; ++i)
    for (const auto& [word, count] : counts[i]) counts[0][word] += count;
  return std::move(counts[0]);
}

}  // namespace tessera::text
