#include <tessera/base/error.h>
#include <tessera/text/pipeline/simple_models.h>

namespace tessera::text {

void WordLevelModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto found = ids_.find(std::string(word));
  if (found != ids_.end()) return ids.push_back(found->second);
  if (!unknown_)
    throw InputError(concat("the word \"", word,
                            "\" is not in the tokenizer's vocabulary, which has no unknown token either (a WordLevel "
                            "model needs its unk_token)"));
  ids.push_back(*unknown_);
}

}  // namespace tessera::text
