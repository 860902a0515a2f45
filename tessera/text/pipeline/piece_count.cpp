#include <tessera/text/pipeline/piece_count.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <string_view>
#include <thread>
#include <unordered_map>

#include <tessera/text/normalizer.h>
#include <tessera/text/pipeline/pipeline_json.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text {
namespace {

constexpr std::size_t bytes_at_once = std::size_t{1} << 20;

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Counts = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;

/// Groups of whole lines, about a mebibyte each.
std::vector<std::string_view> parts_of(const std::vector<std::string>& texts) {
  std::vector<std::string_view> parts;
  for (const std::string_view text : texts)
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t at = begin + bytes_at_once < text.size() ? text.find('\n', begin + bytes_at_once) : text.npos;
      const std::size_t end = at == text.npos ? text.size() : at + 1;
      parts.push_back(text.substr(begin, end - begin));
      begin = end;
    }
  return parts;
}

/// Counts the words of lines.
class Counter {
 public:
  Counter(const Normalizer& normalizer, const WordCutter& cutter) : normalizer_(normalizer), cutter_(cutter) {}

  void add(std::string_view lines) {
    while (!lines.empty()) {
      const std::size_t size = std::min(lines.find('\n'), lines.size() - 1) + 1;
      add_line(lines.substr(0, size));
      lines.remove_prefix(size);
    }
  }
  const Counts& counts() const { return counts_; }

 private:
  void add_line(std::string_view line) {
    std::string repaired;
    if (!is_utf8(line)) line = repaired = replace_ill_formed(line);
    line = normalizer_.apply(line, storage_);
    cutter_.for_each_word(line, true, scratch_, [&](std::string_view word, bool) {
      if (const auto found = counts_.find(word); found != counts_.end())
        ++found->second;
      else
        counts_.emplace(word, 1);
    });
  }

  const Normalizer& normalizer_;
  const WordCutter& cutter_;
  RegexScratch scratch_;
  std::string storage_;
  Counts counts_;
};

}  // namespace

CountedWords count_pieces(const std::vector<std::string>& texts, const Value& document, int threads,
                          const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const Normalizer normalizer = read_normalizer(document.at("normalizer"));
  const WordCutter cutter = read_word_cutter(document.at("pre_tokenizer"));
  const std::vector<std::string_view> parts = parts_of(texts);
  std::int64_t all = 0;
  for (const std::string_view part : parts) all += static_cast<std::int64_t>(part.size());

  const std::size_t workers = std::clamp<std::size_t>(parts.size(), 1, static_cast<std::size_t>(std::max(threads, 1)));
  std::deque<Counter> counters;
  for (std::size_t i = 0; i < workers; ++i) counters.emplace_back(normalizer, cutter);
  std::atomic<std::size_t> next = 0;
  std::atomic<std::int64_t> done = 0;
  const auto work = [&](Counter& counter) {
    for (std::size_t i = next++; i < parts.size(); i = next++) {
      counter.add(parts[i]);
      const std::int64_t now = done += static_cast<std::int64_t>(parts[i].size());
      if (progress) progress(now, all);
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < workers; ++i) others.emplace_back([&, i] { work(counters[i]); });
    work(counters[0]);
  }
  Counts total;
  for (const Counter& counter : counters)
    for (const auto& [word, count] : counter.counts()) total[word] += count;
  CountedWords words(total.begin(), total.end());
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace tessera::text
