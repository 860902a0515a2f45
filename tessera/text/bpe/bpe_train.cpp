#include <tessera/base/error.h>
#include <tessera/text/bpe/bpe_train.h>
#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/bpe/merge_learner.h>
#include <tessera/text/bpe/word_count.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>
#include <array>

namespace tessera::text {
namespace {

class Trainer {
 public:
  explicit Trainer(const BpeTrainOptions& options) : options_(options) {
    for (const std::string& token : options.special_tokens)
      file_.specials.emplace_back(token, learner_.add_token(token));
    // the 256 spellings, ordered by code point like Hugging Face's alphabet
    std::vector<std::pair<std::uint32_t, int>> alphabet;
    for (int byte = 0; byte < 256; ++byte)
      alphabet.emplace_back(ByteAlphabet::get().code_point(static_cast<unsigned char>(byte)), byte);
    std::sort(alphabet.begin(), alphabet.end());
    for (const auto& [code, byte] : alphabet)
      byte_ids_[byte] = learner_.add_token(ByteAlphabet::get().spell(std::string(1, static_cast<char>(byte))));
  }

  void add_words(const WordCounts& counts) {
    for (const auto& [text, count] : counts) {
      std::vector<MergeLearner::Id> symbols;
      for (const char c : text) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      learner_.add_word(std::move(symbols), count);
    }
  }

  BpeFile train() {
    learner_.learn(options_.vocab_size, options_.min_frequency, [&](std::int64_t done, std::int64_t of) {
      if (options_.progress) options_.progress("merges", done, of);
    });
    const std::vector<std::string>& tokens = learner_.tokens();
    for (std::size_t id = 0; id < tokens.size(); ++id)
      file_.vocabulary.emplace_back(tokens[id], static_cast<std::int32_t>(id));
    for (const auto& [left, right] : learner_.merges())
      file_.merges.emplace_back(tokens[static_cast<std::size_t>(left)], tokens[static_cast<std::size_t>(right)]);
    return std::move(file_);
  }

 private:
  const BpeTrainOptions& options_;
  BpeFile file_;
  MergeLearner learner_;
  std::array<MergeLearner::Id, 256> byte_ids_{};
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
