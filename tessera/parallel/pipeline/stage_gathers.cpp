#include <tessera/parallel/pipeline/stage_gathers.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>

#include <utility>

namespace tessera::parallel {

StageGathers::StageGathers(Sharded& sharded, std::map<int, std::vector<std::string>> parameters)
    : sharded_(sharded), parameters_(std::move(parameters)) {}

void StageGathers::act(const layout::schedule::Action& action) {
  using layout::schedule::Kind;
  const auto found = parameters_.find(action.stage);
  TESSERA_CHECK(found != parameters_.end(), text_of(action), ": stage ", action.stage, " is not on this rank");
  if (found->second.empty()) return;  // an empty list of names would mean all
  if (action.kind == Kind::gather) {
    TESSERA_CHECK(whole_.count(action.stage) == 0, text_of(action), ": stage ", action.stage, " is already gathered");
    whole_[action.stage] = std::make_unique<Sharded::Unsharded>(
        sharded_, Sharded::UnshardedOptions{.names = found->second, .write_back = false});
  } else if (action.kind == Kind::reshard) {
    whole_.erase(action.stage);
  }
}

}  // namespace tessera::parallel
