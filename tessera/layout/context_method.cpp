#include <tessera/layout/context_method.h>

namespace tessera::layout {

const WordTable& words_of(ContextMethod) {
  static const WordTable words = {
      {"p2p", "all_gather", "a2a", "a2a+p2p"},
      {{"ring", "p2p"}, {"allgather", "all_gather"}, {"alltoall", "a2a"}, {"all_to_all", "a2a"}, {"ulysses", "a2a"}}};
  return words;
}

}  // namespace tessera::layout
