#include <tessera/text/wordpiece/wordpiece_train.h>

#include <tessera/base/error.h>
#include <tessera/text/bpe/merge_learner.h>
#include <tessera/text/pipeline/piece_count.h>
#include <tessera/text/unicode/utf8.h>
#include <tessera/text/wordpiece/wordpiece_json.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace tessera::text {
namespace {

constexpr std::array<const char*, 5> specials = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr std::string_view continuing = "##";

std::string json_of(const std::vector<std::string>& tokens, bool lowercase) {
  std::string vocabulary;
  for (const std::string& token : tokens) vocabulary += token + "\n";
  return tokenizer_json_of_vocabulary(vocabulary, "the trained vocabulary",
                                      lowercase ? R"({"do_lower_case": true})" : R"({"do_lower_case": false})",
                                      "the trained configuration");
}

/// The most frequent characters.
std::set<std::string> alphabet_of(const CountedWords& words, std::int64_t limit) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& [word, count] : words)
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t size = code_point_at(word, at).size;
      counts[word.substr(at, size)] += count;
      at += size;
    }
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [character, count] : counts) order.emplace_back(-count, character);
  std::sort(order.begin(), order.end());
  if (static_cast<std::int64_t>(order.size()) > limit) order.resize(static_cast<std::size_t>(limit));
  std::set<std::string> alphabet;
  for (const auto& [count, character] : order) alphabet.insert(character);
  return alphabet;
}

/// The characters of a word that belong to the alphabet, as tokens; others are passed over.
std::vector<std::string> symbols_of(const std::string& word, const std::set<std::string>& alphabet) {
  std::vector<std::string> symbols;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = code_point_at(word, at).size;
    const std::string character = word.substr(at, size);
    if (alphabet.contains(character)) symbols.push_back(at == 0 ? character : std::string(continuing) + character);
    at += size;
  }
  return symbols;
}

}  // namespace

std::string train_wordpiece(const std::vector<std::string>& texts, const WordPieceTrainOptions& options) {
  const std::vector<std::string> special_tokens(specials.begin(), specials.end());
  const auto tell = [&](const char* phase) {
    return [&options, phase](std::int64_t done, std::int64_t of) {
      if (options.progress) options.progress(phase, done, of);
    };
  };
  const Value document = parse_json(json_of(special_tokens, options.lowercase), "tokenizer.json");
  const CountedWords words = count_pieces(texts, document, options.threads, tell("bytes"));
  if (words.empty()) throw InputError("the training text is empty");
  const std::set<std::string> alphabet = alphabet_of(words, options.limit_alphabet);

  std::set<std::string> inside;
  for (const auto& [word, count] : words)
    for (std::string& symbol : symbols_of(word, alphabet))
      if (symbol.starts_with(continuing)) inside.insert(std::move(symbol));
  const auto least = static_cast<std::int64_t>(special_tokens.size() + alphabet.size() + inside.size());
  if (options.vocab_size < least)
    throw InputError(concat("a vocabulary of ", options.vocab_size, " is too small: ", special_tokens.size(),
                            " special tokens and ", alphabet.size(), " characters, which stand at the beginning of ",
                            "words and inside them, need ", least, " (--limit_alphabet takes the most frequent ones)"));

  MergeLearner learner{std::string(continuing)};
  for (const std::string& token : special_tokens) learner.add_token(token);
  for (const std::string& character : alphabet) learner.add_token(character);
  for (const std::string& symbol : inside) learner.add_token(symbol);
  for (const auto& [word, count] : words) {
    std::vector<MergeLearner::Id> ids;
    for (const std::string& symbol : symbols_of(word, alphabet)) ids.push_back(learner.add_token(symbol));
    learner.add_word(std::move(ids), count);
  }
  learner.learn(options.vocab_size, options.min_frequency, tell("merges"));
  return json_of(learner.tokens(), options.lowercase);
}

}  // namespace tessera::text
