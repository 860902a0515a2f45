#include <tessera/faces/plateau.h>

#include <tessera/base/error.h>
#include <tessera/train/loop/optimization.h>

namespace tessera::faces {

PlateauRates::PlateauRates(const optim::Schedule& schedule, const std::vector<double>& bases) {
  for (const double base : bases) {
    optim::Schedule own = schedule;
    own.learning_rate = base;
    plateaus_.emplace(base, optim::Plateau(own));
  }
}

void PlateauRates::update(double metric) {
  for (auto& [base, plateau] : plateaus_) plateau.update(metric);
}

Value PlateauRates::state() const {
  Value state = Value::make_array();
  for (const auto& [base, plateau] : plateaus_) state.push_back(train::to_value(plateau.state()));
  return state;
}

void PlateauRates::set_state(const Value& state) {
  if (state.items().size() != plateaus_.size())
    throw InputError(concat("the checkpoint's reduce_lr_on_plateau has ", state.items().size(),
                            " different learning rates, this optimizer's groups have ", plateaus_.size(),
                            ": resume with the same optimizer"));
  auto item = state.items().begin();
  for (auto& [base, plateau] : plateaus_) train::restore_plateau(plateau, *item++);
}

}  // namespace tessera::faces
