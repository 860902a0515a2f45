#include <tessera/text/unigram/unigram_train.h>

#include <tessera/base/error.h>
#include <tessera/base/value.h>
#include <tessera/text/pipeline/piece_count.h>
#include <tessera/text/unicode/utf8.h>
#include <tessera/text/unigram/seed_pieces.h>
#include <tessera/text/unigram/trie.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <utility>

namespace tessera::text {
namespace {

using Pieces = std::vector<std::pair<std::string, double>>;  // spelling; weight, or log probability

constexpr std::size_t chunks = 64;  // the words in so many parts: sums do not depend on the threads
constexpr double least_expected = 0.5;
constexpr double penalty_of_unknown = 10;
constexpr double impossible = -std::numeric_limits<double>::infinity();

/// The derivative of log gamma, x > 0: recurrence up to 7, then the asymptotic series (Abramowitz and Stegun 6.3.18).
double digamma(double x) {
  double result = 0;
  for (; x < 7; ++x) result -= 1 / x;
  x -= 0.5;
  const double xx = 1 / x / x;
  return result + std::log(x) + xx / 24 - 7 * xx * xx / 960 + 31 * xx * xx * xx / 8064;
}

double log_sum(double a, double b) {
  if (a == impossible) return b;
  if (b == impossible) return a;
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

/// A model in the making: pieces with log probabilities, found by a trie.
class Model {
 public:
  explicit Model(const Pieces& pieces) : pieces_(pieces) {
    double least = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      trie_.add(pieces[i].first, static_cast<std::int32_t>(i));
      least = std::min(least, pieces[i].second);
    }
    unknown_ = least - penalty_of_unknown;
  }

  struct Edge {
    std::size_t begin, end;
    std::int32_t piece;  ///< or Trie::none: a character that no piece is
    double score;
  };
  /// All ways through a word, ascending by where they begin.
  void edges_of(std::string_view word, std::vector<Edge>& edges) const {
    edges.clear();
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t size = code_point_at(word, at).size;
      bool has_character = false;
      trie_.for_each_prefix(word.substr(at), [&](std::size_t bytes, std::int32_t piece) {
        edges.push_back({at, at + bytes, piece, pieces_[static_cast<std::size_t>(piece)].second});
        has_character |= bytes == size;
      });
      if (!has_character) edges.push_back({at, at + size, Trie::none, unknown_});
      at += size;
    }
  }
  const Pieces& pieces() const { return pieces_; }

 private:
  const Pieces& pieces_;
  Trie trie_;
  double unknown_ = 0;
};

using Edge = Model::Edge;

/// Working memory for one word at a time.
struct Lattice {
  std::vector<Edge> edges;
  std::vector<double> forward, backward;
  std::vector<std::size_t> best;
  std::vector<std::int32_t> path;

  /// The most probable way, as pieces, in path; empty: there is none. `without`: the piece that is not taken for all
  /// of the word.
  void viterbi(std::size_t size, std::int32_t without = Trie::none) {
    forward.assign(size + 1, impossible);
    best.assign(size + 1, 0);
    forward[0] = 0;
    for (std::size_t e = 0; e < edges.size(); ++e) {
      const Edge& edge = edges[e];
      if (without != Trie::none && edge.piece == without && edge.begin == 0 && edge.end == size) continue;
      if (const double score = forward[edge.begin] + edge.score; score > forward[edge.end]) {
        forward[edge.end] = score;
        best[edge.end] = e;
      }
    }
    path.clear();
    if (forward[size] == impossible) return;
    for (std::size_t end = size; end > 0; end = edges[best[end]].begin) path.push_back(edges[best[end]].piece);
  }

  /// Adds to `expected` how often each piece is to be expected in `count` such words.
  void expect(std::size_t size, double count, std::vector<double>& expected) {
    forward.assign(size + 1, impossible);
    backward.assign(size + 1, impossible);
    forward[0] = backward[size] = 0;
    for (const Edge& edge : edges) forward[edge.end] = log_sum(forward[edge.end], forward[edge.begin] + edge.score);
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge)
      backward[edge->begin] = log_sum(backward[edge->begin], backward[edge->end] + edge->score);
    const double all = forward[size];
    for (const Edge& edge : edges)
      if (edge.piece != Trie::none)
        expected[static_cast<std::size_t>(edge.piece)] +=
            count * std::exp(forward[edge.begin] + edge.score + backward[edge.end] - all);
  }
};

class Trainer {
 public:
  Trainer(CountedWords words, const UnigramTrainOptions& options) : words_(std::move(words)), options_(options) {}

  /// Pieces with their log probabilities, in no order.
  Pieces train() {
    Pieces pieces = seed_pieces(words_, static_cast<std::size_t>(options_.longest_piece),
                                static_cast<std::size_t>(options_.seed_pieces));
    double sum = 0;
    for (const auto& [text, weight] : pieces) sum += weight;
    for (auto& [text, weight] : pieces) weight = std::log(weight) - std::log(sum);
    const auto wanted = static_cast<std::size_t>(options_.vocab_size * 11 / 10);
    const std::size_t seeds = pieces.size();
    for (;;) {
      for (int i = 0; i < options_.sub_iterations; ++i) pieces = maximise(pieces, expect(pieces));
      if (options_.progress)
        options_.progress("pruning", static_cast<std::int64_t>(seeds - pieces.size()),
                          static_cast<std::int64_t>(seeds > wanted ? seeds - wanted : 0));
      if (pieces.size() <= wanted) return pieces;
      Pieces left = prune(pieces, wanted);
      if (left.size() == pieces.size()) return left;
      pieces = std::move(left);
    }
  }

 private:
  /// Calls work(words from, to, sums) for each chunk, and adds up the sums in order.
  template <class Work>
  std::vector<double> in_chunks(std::size_t size, const Work& work) const {
    std::vector<double> total(size, 0);
    const auto workers = static_cast<std::size_t>(std::clamp(options_.threads, 1, static_cast<int>(chunks)));
    // As many chunks at once as there are threads: their sums are all the memory that is needed.
    for (std::size_t first = 0; first < chunks; first += workers) {
      const std::size_t count = std::min(workers, chunks - first);
      std::vector<std::vector<double>> sums(count, std::vector<double>(size, 0));
      {
        const auto run = [&](std::size_t i) {
          const std::size_t chunk = first + i;
          work(words_.size() * chunk / chunks, words_.size() * (chunk + 1) / chunks, sums[i]);
        };
        std::vector<std::jthread> threads;  // joined before what they call goes
        for (std::size_t i = 1; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
        run(0);
      }
      for (const auto& part : sums)
        for (std::size_t i = 0; i < size; ++i) total[i] += part[i];
    }
    return total;
  }

  std::vector<double> expect(const Pieces& pieces) const {
    const Model model(pieces);
    return in_chunks(pieces.size(), [&](std::size_t from, std::size_t to, std::vector<double>& sums) {
      Lattice lattice;
      for (std::size_t w = from; w < to; ++w) {
        const auto& [word, count] = words_[w];
        model.edges_of(word, lattice.edges);
        lattice.expect(word.size(), static_cast<double>(count), sums);
      }
    });
  }

  /// Bayesian: digamma takes from rare pieces (Liang and Klein, "Structured Bayesian Nonparametric Models with
  /// Variational Inference", ACL 2007).
  static Pieces maximise(const Pieces& pieces, const std::vector<double>& expected) {
    Pieces kept;
    double sum = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (expected[i] < least_expected) continue;
      kept.emplace_back(pieces[i].first, expected[i]);
      sum += expected[i];
    }
    const double log_of_sum = digamma(sum);
    for (auto& [text, weight] : kept) weight = digamma(weight) - log_of_sum;
    return kept;
  }

  /// Takes out the pieces without which the text loses least probability, at most down to `wanted`.
  Pieces prune(const Pieces& pieces, std::size_t wanted) const {
    const Model model(pieces);
    const std::size_t size = pieces.size();
    const std::vector<double> found = in_chunks(2 * size, [&](std::size_t from, std::size_t to, auto& sums) {
      Lattice lattice;
      std::vector<std::int32_t> seen;
      for (std::size_t w = from; w < to; ++w) {
        const auto& [word, count] = words_[w];
        model.edges_of(word, lattice.edges);
        lattice.viterbi(word.size());
        for (const std::int32_t piece : lattice.path) {
          if (piece == Trie::none) continue;
          sums[static_cast<std::size_t>(piece)] += static_cast<double>(count);         // how often it is used,
          sums[size + static_cast<std::size_t>(piece)] += static_cast<double>(count);  // and in how many words
        }
      }
    });
    double used = 0, all_words = 0;
    for (std::size_t i = 0; i < size; ++i) used += found[i];
    for (const auto& [word, count] : words_) all_words += static_cast<double>(count);

    Pieces left;
    std::vector<std::pair<double, std::size_t>> candidates;
    Lattice lattice;
    for (std::size_t i = 0; i < size; ++i) {
      const std::string& text = pieces[i].first;
      model.edges_of(text, lattice.edges);
      const bool one_way = lattice.edges.size() == 1;
      lattice.viterbi(text.size());
      const bool keeps_itself = lattice.path.size() == 1;
      if (one_way) {
        left.push_back(pieces[i]);
        continue;
      }
      if (found[i] == 0 && !keeps_itself) continue;
      lattice.viterbi(text.size(), static_cast<std::int32_t>(i));
      const std::vector<std::int32_t>& others = lattice.path;  // what it would become
      if (!keeps_itself || others.empty()) {
        left.push_back(pieces[i]);
        continue;
      }
      if (found[i] == 0) continue;
      const double log_used = std::log(used);
      const double log_after = std::log(used + found[i] * static_cast<double>(others.size() - 1));
      double after = 0;
      for (const std::int32_t other : others)
        after += std::log((other == Trie::none ? 0 : found[static_cast<std::size_t>(other)]) + found[i]) - log_after;
      const double loss = found[size + i] / all_words * (std::log(found[i]) - log_used - after);
      candidates.emplace_back(-loss, i);
    }
    std::sort(candidates.begin(), candidates.end());
    const std::size_t leave =
        std::max(wanted, static_cast<std::size_t>(options_.shrinking_factor * static_cast<double>(size)));
    for (const auto& [loss, i] : candidates) {
      if (left.size() >= leave) break;
      left.push_back(pieces[i]);
    }
    return left;
  }

  CountedWords words_;
  const UnigramTrainOptions& options_;
};

/// All characters, the rare ones too, then the most probable pieces.
Pieces finished(const Pieces& pieces, const CountedWords& words, std::size_t room) {
  std::set<std::string> characters;
  for (const auto& [word, count] : words)
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t size = code_point_at(word, at).size;
      characters.insert(word.substr(at, size));
      at += size;
    }
  if (characters.size() > room)
    throw InputError(concat("a vocabulary with room for ", room, " pieces is too small: the text has ",
                            characters.size(), " different characters, each of which is one"));
  const std::map<std::string, double> scores(pieces.begin(), pieces.end());
  double least = 0;
  for (const auto& [text, score] : pieces) least = std::min(least, score);
  Pieces out;
  double penalty = 0;
  for (const std::string& character : characters) {
    const auto found = scores.find(character);
    out.emplace_back(character, found != scores.end() ? found->second : least + (penalty -= 0.0001));
  }
  Pieces sorted = pieces;
  const auto by_score = [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  std::sort(sorted.begin(), sorted.end(), by_score);
  for (const auto& piece : sorted) {
    if (out.size() >= room) break;
    if (!characters.contains(piece.first)) out.push_back(piece);
  }
  std::sort(out.begin(), out.end(), by_score);
  return out;
}

Value document_of(const std::vector<std::string>& specials, const Pieces& pieces) {
  const auto typed = [](const char* type) { return Value::make_object({{"type", Value::of(type)}}); };
  const auto metaspace = [] {
    return Value::make_object({{"type", Value::of("Metaspace")},
                               {"replacement", Value::of("\xE2\x96\x81")},
                               {"prepend_scheme", Value::of("always")},
                               {"split", Value::of(true)}});
  };
  std::vector<Value> added, vocabulary;
  for (std::size_t id = 0; id < specials.size(); ++id) {
    added.push_back(Value::make_object({{"id", Value::of(static_cast<std::int64_t>(id))},
                                        {"content", Value::of(specials[id])},
                                        {"single_word", Value::of(false)},
                                        {"lstrip", Value::of(false)},
                                        {"rstrip", Value::of(false)},
                                        {"normalized", Value::of(false)},
                                        {"special", Value::of(true)}}));
    vocabulary.push_back(Value::make_array({Value::of(specials[id]), Value::of(0.0)}));
  }
  for (const auto& [text, score] : pieces) vocabulary.push_back(Value::make_array({Value::of(text), Value::of(score)}));
  Value blanks = Value::make_object({{"type", Value::of("Replace")},
                                     {"pattern", Value::make_object({{"Regex", Value::of(" {2,}")}})},
                                     {"content", Value::of(" ")}});
  return Value::make_object(
      {{"version", Value::of("1.0")},
       {"truncation", Value()},
       {"padding", Value()},
       {"added_tokens", Value::make_array(std::move(added))},
       {"normalizer",
        Value::make_object({{"type", Value::of("Sequence")},
                            {"normalizers", Value::make_array({typed("Nmt"), typed("NFKC"), std::move(blanks)})}})},
       {"pre_tokenizer", metaspace()},
       {"post_processor", Value()},
       {"decoder", metaspace()},
       {"model", Value::make_object({{"type", Value::of("Unigram")},
                                     {"unk_id", Value::of(static_cast<std::int64_t>(specials.size()) - 1)},
                                     {"vocab", Value::make_array(std::move(vocabulary))},
                                     {"byte_fallback", Value::of(false)}})}});
}

}  // namespace

std::string train_unigram(const std::vector<std::string>& texts, const UnigramTrainOptions& options) {
  const auto special = static_cast<std::int64_t>(options.special_tokens.size());
  TESSERA_CHECK(special >= 1, "a unigram model without an unknown token");
  if (options.vocab_size <= special)
    throw InputError(concat("a vocabulary of ", options.vocab_size, " is too small: there are ", special,
                            " special tokens already"));
  const CountedWords words = count_pieces(texts, document_of(options.special_tokens, {}), options.threads,
                                          [&](std::int64_t done, std::int64_t of) {
                                            if (options.progress) options.progress("bytes", done, of);
                                          });
  if (words.empty()) throw InputError("the training text is empty");
  const Pieces pieces = Trainer(words, options).train();
  return dump_json(document_of(options.special_tokens,
                               finished(pieces, words, static_cast<std::size_t>(options.vocab_size - special))));
}

}  // namespace tessera::text
