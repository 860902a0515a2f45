#pragma once
/// \file
/// Named values that must be equal on all ranks, and the message that lists differences. Torch-free.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::comm {

/// Values that must be the same on every rank, by name: {"config", "9f3a..."}, {"seed", "42"}.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

/// Convert to and from one value of the store. Names and values may contain any bytes. from_text throws Error for text
/// not written by to_text of the same build.
std::string to_text(const Fingerprint& facts);
Fingerprint from_text(const std::string& text);

/// nullopt if all agree, else each differing name with its values and their ranks:
/// "seed is '42' on ranks 0-2, 5 but '7' on rank 3; model is 'gpt2' on ranks 0-3 but not given on rank 5".
std::optional<std::string> differences(const std::map<int, Fingerprint>& facts_of_rank);

}  // namespace tessera::comm
