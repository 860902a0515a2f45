#include <tessera/comm/ring/choice.h>

namespace tessera::comm::ring {

std::optional<Choice> choose(Collective, std::int64_t, int) { return Choice{}; }

}  // namespace tessera::comm::ring
