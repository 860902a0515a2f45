#pragma once
/// \file
/// Arguments that no table has: whose they are, and which of them `--unknown warn` may pass over.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

/// Names of another program's among unknown ones, and what to say of it.
struct ForeignWords {
  std::vector<std::string> names;  ///< as given
  std::string_view why;            ///< "LLaMA-Factory's configurations are not read: ..."
};
/// The program whose own words are among `names` (underscores or dashes); nullopt: nobody's that is known.
std::optional<ForeignWords> foreign_words(const std::vector<std::string>& names);

/// Whether an unknown name may change what is learnt, by its parts (learning_rate_2, my_loss_weight): it is never
/// passed over.
bool concerns_training(std::string_view name);

/// One warning about those that were passed over.
std::string passed_over_note(const std::vector<std::string>& said);

}  // namespace tessera::config
