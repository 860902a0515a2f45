#pragma once
/// \file
/// Unknown arguments: which program they belong to, and which of them `--unknown warn` may ignore.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

/// Unknown names that belong to another program, and the message about it.
struct ForeignWords {
  std::vector<std::string> names;  ///< as given
  std::string_view why;            ///< "LLaMA-Factory's configurations are not supported: ..."
};
/// The program whose own words are among `names` (underscores or dashes); nullopt: no known program's.
std::optional<ForeignWords> foreign_words(const std::vector<std::string>& names);

/// Whether an unknown name, judged by its parts, may affect the training result (learning_rate_2, my_loss_weight); such
/// a name is never ignored.
bool concerns_training(std::string_view name);

/// One warning about the ignored arguments.
std::string passed_over_note(const std::vector<std::string>& said);

}  // namespace tessera::config
