#pragma once
/// \file
/// Named values that must be equal on all ranks, and the sentence about those that are not. Torch-free.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::comm {

/// What must be the same on every rank, by name: {"config", "9f3a..."}, {"seed", "42"}.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

/// As one value for the store, and back. Any bytes are allowed in names and values. from_text throws Error for what
/// to_text did not write (a rank of another build).
std::string to_text(const Fingerprint& facts);
Fingerprint from_text(const std::string& text);

/// nullopt when all agree, else each differing name with its values and their ranks:
/// "seed is '42' on ranks 0-2, 5 but '7' on rank 3; model is 'gpt2' on ranks 0-3 but not given on rank 5".
std::optional<std::string> differences(const std::map<int, Fingerprint>& facts_of_rank);

}  // namespace tessera::comm
