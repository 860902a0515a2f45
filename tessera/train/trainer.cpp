#include <tessera/train/trainer.h>

#include <tessera/base/log.h>
#include <tessera/comm/life.h>
#include <tessera/train/batch_size.h>
#include <tessera/train/determinism.h>
#include <tessera/train/fixed_order.h>
#include <tessera/train/training_loop.h>

namespace tessera::train {
namespace {

Setup checked_setup(const RunConfig& config, const Value& resolved, comm::World& ranks) {
  Setup setup;
  RunConfig here;
  agree(ranks.group(), [&] {
    here = with_fixed_order(config, resolved, ranks.size());
    check_automatic_batch_size(here, ranks.size());
    set_threads(here.parallel.threads_per_process, ranks.local_size());
  });
  const Start start = choose_start(here, ranks);
  agree(ranks.group(), [&] {
    setup = prepare(here, ranks, start);
    optim::make_plateau(make_schedule(config.optimization, setup.plan));  // bad parameters are told once, too
    optim::check_optimizer(optimizer_choice(config.optimization));
  });
  check_same_start(ranks.group(), setup.plan.resumed_step);
  return setup;
}

ExitCode run(const RunConfig& given, const Value& resolved, comm::World& ranks) {
  const std::int64_t process_bytes = resident_bytes();
  RunConfig config = with_full_determinism(given);
  const bool finds_batch_size = config.optimization.auto_find_batch_size;
  for (;;) {
    {
      TrainingLoop loop(checked_setup(config, resolved, ranks), resolved, process_bytes);
      if (!finds_batch_size || loop.fits()) return loop.run();
    }
    const std::string told = halve_batch_size(config.optimization);  // the model and all its memory are gone by now
    if (ranks.rank() == 0) log::info(told);
  }
}

}  // namespace

ExitCode train(const RunConfig& config, const Value& resolved) {
  try {
    return run(config, resolved, world());
  } catch (const FailedElsewhere&) {
    throw;  // another rank says why
  } catch (const std::exception& error) {
    comm::life().fail(error.what());
    throw;
  }
}

}  // namespace tessera::train
