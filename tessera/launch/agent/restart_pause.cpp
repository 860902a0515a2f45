#include <tessera/launch/agent/restart_pause.h>

#include <algorithm>

namespace tessera::launch {

double RestartPause::next(bool progress) {
  last_ = progress ? 0 : last_ == 0 ? std::min(first_, most_) : std::min(2 * last_, most_);
  return last_;
}

}  // namespace tessera::launch
