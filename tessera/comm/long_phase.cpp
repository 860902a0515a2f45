#include <tessera/comm/long_phase.h>

#include <tessera/comm/life.h>

namespace tessera::comm {

LongPhase::LongPhase(std::string_view name)
    : before_(life().state()), name_before_(launch::read_text(life().slot().phase)) {
  if (before_ == launch::RankState::running) life().set_state(launch::RankState::working);
  life().set_phase(name);
}

LongPhase::~LongPhase() {
  life().set_state(before_);
  life().set_phase(name_before_);
}

void LongPhase::advance() { life().advance(); }

}  // namespace tessera::comm
