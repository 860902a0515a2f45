#include <tessera/text/bpe/merge_learner.h>

#include <algorithm>

namespace tessera::text {

MergeLearner::Id MergeLearner::add_token(const std::string& spelling) {
  const auto [place, is_new] = ids_.emplace(spelling, static_cast<Id>(tokens_.size()));
  if (is_new) tokens_.push_back(spelling);
  return place->second;
}

void MergeLearner::learn(std::int64_t vocab_size, std::int64_t min_frequency,
                         const std::function<void(std::int64_t done, std::int64_t of)>& progress) {
  count_pairs();
  const auto wanted = vocab_size - static_cast<std::int64_t>(tokens_.size());
  while (static_cast<std::int64_t>(tokens_.size()) < vocab_size && !queue_.empty()) {
    Candidate best = queue_.top();
    queue_.pop();
    if (const std::int64_t now = pair_counts_[best.pair]; now != best.count) {  // stale: reinsert it
      best.count = now;
      if (now > 0) queue_.push(std::move(best));
      continue;
    }
    if (best.count < std::max<std::int64_t>(min_frequency, 1)) break;
    join(best);
    if (progress && merges_.size() % 256 == 0) progress(static_cast<std::int64_t>(merges_.size()), wanted);
  }
}

void MergeLearner::count_pairs() {
  Seen seen;
  for (std::uint32_t w = 0; w < words_.size(); ++w) {
    const auto& symbols = words_[w].symbols;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) note(seen, {symbols[i], symbols[i + 1]}, words_[w].count, w);
  }
  push(seen);
}

/// Changes the pair's count by `change` because of word w.
void MergeLearner::note(Seen& seen, Pair pair, std::int64_t change, std::uint32_t w) {
  pair_counts_[pair] += change;
  if (change < 0) return;
  auto& words = seen[pair];
  if (words.empty() || words.back() != w) words.push_back(w);
}

void MergeLearner::push(Seen& seen) {
  for (auto& [pair, words] : seen)
    if (const std::int64_t count = pair_counts_[pair]; count > 0) queue_.push({pair, count, std::move(words)});
}

void MergeLearner::join(const Candidate& best) {
  const auto [left, right] = best.pair;
  std::string second = tokens_[static_cast<std::size_t>(right)];
  if (!continuing_.empty() && second.starts_with(continuing_)) second.erase(0, continuing_.size());
  const Id joined = add_token(tokens_[static_cast<std::size_t>(left)] + second);
  merges_.emplace_back(left, right);
  Seen seen;
  for (const std::uint32_t w : best.words) join_in_word(w, best.pair, joined, seen);
  push(seen);
}

void MergeLearner::join_in_word(std::uint32_t w, Pair pair, Id joined, Seen& seen) {
  Word& word = words_[w];
  auto& s = word.symbols;
  std::size_t out = 0;  // s[0, out) is finished
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

}  // namespace tessera::text
