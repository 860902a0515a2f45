#pragma once
/// \file
/// What the training of a unigram model begins with: characters, and substrings that repeat.

#include <tessera/text/pipeline/piece_count.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::text {

/// Characters, each with how often it occurs in all words (the most frequent first); then substrings of 2 to
/// `longest` characters that occur at least twice in the distinct words and cannot be continued by a character without
/// occurring less often, each with occurrences x characters, the largest first; at most `most` pieces in all, but never
/// fewer than the characters. (The inner nodes of a suffix tree, as SentencePiece's and Hugging Face's trainers take
/// them; here from sorted suffixes.) Ties by spelling.
std::vector<std::pair<std::string, double>> seed_pieces(const CountedWords& words, std::size_t longest,
                                                        std::size_t most);

}  // namespace tessera::text
