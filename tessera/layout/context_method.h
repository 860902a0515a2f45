#pragma once
/// \file
/// How the ranks of axis cp, each of which has a part of every sequence, compute attention over the whole.

#include <tessera/base/words.h>

#include <string_view>

namespace tessera::layout {

/// How keys and values get to the queries. The words are those of Megatron-LM's --cp-comm-type; others' are ring,
/// allgather, alltoall and ulysses.
enum class ContextMethod : unsigned char {
  p2p,         ///< they pass round a ring (Liu et al. 2023, Ring Attention)
  all_gather,  ///< every rank gathers those of the whole sequence (Grattafiori et al. 2024, Llama 3)
  a2a,         ///< parts of the sequence are exchanged for heads (Jacobs et al. 2023, DeepSpeed Ulysses)
  a2a_p2p,     ///< a2a among neighbours along cp, p2p across them (Fang and Zhao 2024, USP)
};
const WordTable& words_of(ContextMethod);
inline std::string_view context_method_name(ContextMethod method) { return word_of(method); }

}  // namespace tessera::layout
