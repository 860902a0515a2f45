#pragma once
/// \file
/// The training loop of byte-pair encoding: repeatedly joins the most frequent adjacent pair into one symbol (Sennrich
/// et al. 2016, arXiv:1508.07909). Shared by byte-level BPE and WordPiece.

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::text {

/// Deterministic: the most frequent pair wins, and on ties the pair with the smaller ids (tokenizers,
/// models/bpe/trainer.rs).
class MergeLearner {
 public:
  using Id = std::int32_t;

  /// `continuing`: prefix of tokens that do not begin a word ("##"); joining removes it from the right token.
  explicit MergeLearner(std::string continuing = "") : continuing_(std::move(continuing)) {}

  /// The id of a token; a new token gets the next number.
  Id add_token(const std::string& spelling);
  /// Adds a distinct word as ids, with its number of occurrences.
  void add_word(std::vector<Id> symbols, std::int64_t count) { words_.push_back({std::move(symbols), count}); }
  /// Joins pairs until there are `vocab_size` tokens or no remaining pair occurs at least `min_frequency` times.
  /// `progress` (may be empty) is called occasionally with the number of merges and the number wanted.
  void learn(std::int64_t vocab_size, std::int64_t min_frequency,
             const std::function<void(std::int64_t done, std::int64_t of)>& progress);

  const std::vector<std::string>& tokens() const { return tokens_; }  ///< by id
  const std::vector<std::pair<Id, Id>>& merges() const { return merges_; }

 private:
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
  struct Word {
    std::vector<Id> symbols;
    std::int64_t count;
  };
  /// A pair waiting to be joined, and the words in which it was seen. Its count may be stale, so it is checked when the
  /// pair is popped.
  struct Candidate {
    Pair pair;
    std::int64_t count;
    std::vector<std::uint32_t> words;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  using Seen = std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash>;

  void count_pairs();
  void note(Seen& seen, Pair pair, std::int64_t change, std::uint32_t w);
  void push(Seen& seen);
  void join(const Candidate& best);
  void join_in_word(std::uint32_t w, Pair pair, Id joined, Seen& seen);

  std::string continuing_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, Id> ids_;
  std::vector<std::pair<Id, Id>> merges_;
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> pair_counts_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace tessera::text
