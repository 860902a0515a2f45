#pragma once
/// \file
/// Where a tokenizer's files are.

#include <string>

namespace tessera::text {

/// Whether a folder holds a tokenizer in one of the forms that load_tokenizer() reads.
bool holds_tokenizer(const std::string& folder);

}  // namespace tessera::text
