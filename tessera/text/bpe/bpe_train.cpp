#include <tessera/base/error.h>
#include <tessera/text/bpe/bpe_train.h>
#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/bpe/word_count.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

namespace tessera::text {
namespace {

using Id = std::int32_t;

struct Pair {
  Id left, right;
  bool operator==(const Pair&) const = default;
  auto operator<=>(const Pair&) const = default;
};
struct PairHash {
  std::size_t operator()(Pair p) const {
    const std::uint64_t both =
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(p.left)) << 32 | static_cast<std::uint32_t>(p.right);
    return static_cast<std::size_t>((both * 0x9E3779B97F4A7C15u) >> 17);
  }
};

/// A distinct word of the text as symbols, and how often it occurs.
struct Word {
  std::vector<Id> symbols;
  std::int64_t count;
};

/// A pair waiting to be joined, and the words it was seen in. Its count may be stale: it is compared when the pair
/// comes up.
struct Candidate {
  Pair pair;
  std::int64_t count;
  std::vector<std::uint32_t> words;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  explicit Trainer(const BpeTrainOptions& options) : options_(options) {
    for (const std::string& token : options.special_tokens) {
      file_.specials.emplace_back(token, add_token(token));
    }
    // the 256 spellings ordered by code point, as Hugging Face orders its alphabet
    std::vector<std::pair<std::uint32_t, int>> alphabet;
    for (int byte = 0; byte < 256; ++byte)
      alphabet.emplace_back(ByteAlphabet::get().code_point(static_cast<unsigned char>(byte)), byte);
    std::sort(alphabet.begin(), alphabet.end());
    for (const auto& [code, byte] : alphabet)
      byte_ids_[byte] = add_token(ByteAlphabet::get().spell(std::string(1, static_cast<char>(byte))));
  }

  void add_words(const WordCounts& counts) {
    for (const auto& [text, count] : counts) {
      Word word{{}, count};
      for (const char c : text) word.symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      words_.push_back(std::move(word));
    }
  }

  BpeFile train() {
    count_pairs();
    const auto wanted = options_.vocab_size - static_cast<std::int64_t>(file_.vocabulary.size());
    while (static_cast<std::int64_t>(file_.vocabulary.size()) < options_.vocab_size && !queue_.empty()) {
      Candidate best = queue_.top();
      queue_.pop();
      if (const std::int64_t now = pair_counts_[best.pair]; now != best.count) {  // stale: it goes back to its place
        best.count = now;
        if (now > 0) queue_.push(std::move(best));
        continue;
      }
      if (best.count < std::max<std::int64_t>(options_.min_frequency, 1)) break;
      join(best);
      if (options_.progress && file_.merges.size() % 256 == 0)
        options_.progress("merges", static_cast<std::int64_t>(file_.merges.size()), wanted);
    }
    return std::move(file_);
  }

 private:
  Id add_token(const std::string& spelling) {
    const auto [place, is_new] = ids_.emplace(spelling, static_cast<Id>(file_.vocabulary.size()));
    if (is_new) file_.vocabulary.emplace_back(spelling, place->second);
    return place->second;
  }

  void count_pairs() {
    std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> seen;
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const auto& symbols = words_[w].symbols;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) note(seen, {symbols[i], symbols[i + 1]}, words_[w].count, w);
    }
    push(seen);
  }

  /// The pair's count changes by `change` because of word w.
  void note(std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash>& seen, Pair pair, std::int64_t change,
            std::uint32_t w) {
    pair_counts_[pair] += change;
    if (change < 0) return;
    auto& words = seen[pair];
    if (words.empty() || words.back() != w) words.push_back(w);
  }

  void push(std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash>& seen) {
    for (auto& [pair, words] : seen)
      if (const std::int64_t count = pair_counts_[pair]; count > 0) queue_.push({pair, count, std::move(words)});
  }

  void join(const Candidate& best) {
    const auto [left, right] = best.pair;
    const std::string left_text = file_.vocabulary[static_cast<std::size_t>(left)].first;
    const std::string right_text = file_.vocabulary[static_cast<std::size_t>(right)].first;
    const Id joined = add_token(left_text + right_text);
    file_.merges.emplace_back(left_text, right_text);
    std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> seen;
    for (const std::uint32_t w : best.words) join_in_word(w, best.pair, joined, seen);
    push(seen);
  }

  void join_in_word(std::uint32_t w, Pair pair, Id joined,
                    std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash>& seen) {
    Word& word = words_[w];
    auto& s = word.symbols;
    std::size_t out = 0;  // s[0, out) is done
    for (std::size_t i = 0; i < s.size(); ++out) {
      if (i + 1 >= s.size() || s[i] != pair.left || s[i + 1] != pair.right) {
        s[out] = s[i++];
        continue;
      }
      if (out > 0) {
        note(seen, {s[out - 1], pair.left}, -word.count, w);
        note(seen, {s[out - 1], joined}, word.count, w);
      }
      if (i + 2 < s.size()) {
        note(seen, {pair.right, s[i + 2]}, -word.count, w);
        note(seen, {joined, s[i + 2]}, word.count, w);
      }
      s[out] = joined;
      i += 2;
    }
    s.resize(out);
  }

  const BpeTrainOptions& options_;
  BpeFile file_;
  std::unordered_map<std::string, Id> ids_;
  std::array<Id, 256> byte_ids_{};
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> pair_counts_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

BpeFile train_bpe(const std::vector<std::string>& texts, const BpeTrainOptions& options) {
  const auto least = static_cast<std::int64_t>(options.special_tokens.size()) + 256;
  if (options.vocab_size < least)
    throw InputError(concat("a vocabulary of ", options.vocab_size, " is too small: 256 bytes and ",
                            options.special_tokens.size(), " special tokens need ", least));
  Trainer trainer(options);
  std::int64_t total = 0;
  for (const std::string& text : texts) total += static_cast<std::int64_t>(text.size());
  if (total == 0) throw InputError("the training text is empty");
  std::vector<std::string> repaired;
  repaired.reserve(texts.size());
  WordCounts all;
  for (const std::string& text : texts) {
    std::string_view well_formed = text;
    if (!is_utf8(text)) well_formed = repaired.emplace_back(replace_ill_formed(text));
    WordCounts counts = count_words(well_formed, options.threads, [&](std::int64_t done) {
      if (options.progress) options.progress("bytes", done, static_cast<std::int64_t>(well_formed.size()));
    });
    if (all.empty())
      all = std::move(counts);
    else
      for (const auto& [word, count] : counts) all[word] += count;
  }
  trainer.add_words(all);
  return trainer.train();
}

}  // namespace tessera::text
