#include <tessera/train/loop/trainer.h>

#include <exception>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <tessera/base/log.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/long_phase.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/config/core/mesh.h>
#include <tessera/launch/watch/verdict.h>
#include <tessera/train/core/resume.h>
#include <tessera/train/loop/batch_size.h>
#include <tessera/train/loop/determinism.h>
#include <tessera/train/loop/fixed_order.h>
#include <tessera/train/loop/sharding.h>
#include <tessera/train/loop/training_loop.h>

namespace tessera::train {
namespace {

RunConfig checked_config(const RunConfig& config, const Value& resolved, comm::World& ranks) {
  RunConfig here;
  run_on_all_ranks(ranks.group(), [&] {
    const std::int64_t copies = config::data_parallel_ranks(config.parallel, ranks.size());
    here = with_fixed_order(config, resolved, copies);
    check_automatic_batch_size(here, copies);
    set_threads(here.parallel.threads_per_process, ranks.local_size());
  });
  return here;
}

std::unique_ptr<TrainingLoop> load(const RunConfig& config, const Value& resolved, comm::World& ranks,
                                   std::int64_t process_bytes, const RunGroups& groups, const Start& start) {
  Setup setup;
  run_on_all_ranks(ranks.group(), [&] {
    setup = prepare(config, ranks, groups, start);
    optim::make_plateau(make_schedule(config.optimization, setup.plan));  // also reports bad parameters only once
    optim::check_optimizer(optimizer_choice(config.optimization));
  });
  // A rank that cannot see the output folder would start from scratch while others resume.
  comm::report_on_first_rank(ranks.group(), [&] {
    comm::require_equal(ranks.group(), "the step at which the run begins", concat(setup.plan.resumed_step),
                        "all ranks must see the same --output_dir and checkpoints (a common file system)");
  });
  return std::make_unique<TrainingLoop>(std::move(setup), resolved, process_bytes);
}

/// Loads from the newest complete checkpoint, or from the configured one. Checksums are computed while loading, so
/// nothing is read twice; if a checkpoint turns out to be damaged, everything loaded from it is dropped and the next
/// one is tried.
std::unique_ptr<TrainingLoop> load_verified(const RunConfig& config, const Value& resolved, comm::World& ranks,
                                            std::int64_t process_bytes, const RunGroups& groups) {
  const comm::LongPhase phase("loading");
  std::set<std::string> rejected;
  for (;;) {
    Start start = choose_start(config, ranks, rejected);
    if (start.checkpoint.empty()) return load(config, resolved, ranks, process_bytes, groups, start);
    const checkpoint::Ranks all = examiners(ranks.group());
    checkpoint::Examination examination(start.checkpoint, all);
    start.sums = examination.sums();
    std::unique_ptr<TrainingLoop> loop;
    std::exception_ptr failed;  // the damage may have caused this error, so the verdict comes first
    try {
      loop = load(config, resolved, ranks, process_bytes, groups, start);
    } catch (const Error&) {
      failed = std::current_exception();
    }
    const checkpoint::Finding finding = examination.finish();
    if (finding.kind == checkpoint::Finding::Kind::whole) {
      if (failed) std::rethrow_exception(failed);
      return loop;
    }
    loop.reset();
    reject_start(ranks, start, finding);
    rejected.insert(start.checkpoint);
  }
}

ExitCode run(const RunConfig& given, const Value& resolved, comm::World& ranks) {
  const std::int64_t process_bytes = resident_bytes();
  RunConfig config = with_full_determinism(given);
  const bool finds_batch_size = config.optimization.auto_find_batch_size;
  const RunGroups groups = make_run_groups(config, ranks);
  for (;;) {
    {
      const auto loop = load_verified(checked_config(config, resolved, ranks), resolved, ranks, process_bytes, groups);
      if (!finds_batch_size || loop->fits()) return loop->run();
    }
    const std::string told = halve_batch_size(config.optimization);  // at this point the model and all its memory have
                                                                     // been freed
    if (ranks.rank() == 0) log::info(told);
  }
}

}  // namespace

ExitCode train(const RunConfig& config, const Value& resolved) {
  try {
    return run(config, resolved, world());
  } catch (const FailedElsewhere& error) {
    comm::heartbeat().fail(launch::failed_elsewhere, error.exit_code());
    throw;
  } catch (const Error& error) {
    comm::heartbeat().fail(error.what(), error.exit_code());
    throw;
  } catch (const std::exception& error) {
    comm::heartbeat().fail(error.what());
    throw;
  }
}

}  // namespace tessera::train
