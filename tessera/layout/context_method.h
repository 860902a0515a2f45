#pragma once
/// \file
/// How the ranks of axis cp, each with a part of every sequence, compute attention over the whole sequence.

#include <tessera/base/words.h>

#include <string_view>

namespace tessera::layout {

/// How queries get access to all keys and values. Named as in Megatron-LM's --cp-comm-type; synonyms: ring, allgather,
/// alltoall, ulysses.
enum class ContextMethod : unsigned char {
  p2p,         ///< keys and values circulate in a ring (Liu et al. 2023, Ring Attention)
  all_gather,  ///< every rank gathers the keys and values of the whole sequence (Grattafiori et al. 2024, Llama 3)
  a2a,         ///< ranks exchange sequence parts for heads (Jacobs et al. 2023, DeepSpeed Ulysses)
  a2a_p2p,     ///< a2a between neighbours along cp, and p2p between groups of neighbours (Fang and Zhao 2024, USP)
};
const WordTable& words_of(ContextMethod);
inline std::string_view context_method_name(ContextMethod method) { return word_of(method); }

}  // namespace tessera::layout
