#pragma once
/// \file
/// A tokenizer without a file: ids 0-255 are the bytes, 256 is <|endoftext|>.

#include <tessera/text/tokenizer.h>

namespace tessera::text {

std::shared_ptr<const Tokenizer> make_byte_tokenizer();

}  // namespace tessera::text
