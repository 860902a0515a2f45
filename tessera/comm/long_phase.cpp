#include <tessera/comm/long_phase.h>

#include <tessera/comm/heartbeat.h>

namespace tessera::comm {

LongPhase::LongPhase(std::string_view name)
    : before_(heartbeat().state()), name_before_(launch::read_text(heartbeat().slot().phase)) {
  if (before_ == launch::RankState::running) heartbeat().set_state(launch::RankState::working);
  heartbeat().set_phase(name);
}

LongPhase::~LongPhase() {
  heartbeat().set_state(before_);
  heartbeat().set_phase(name_before_);
}

void LongPhase::advance() { heartbeat().advance(); }

}  // namespace tessera::comm
