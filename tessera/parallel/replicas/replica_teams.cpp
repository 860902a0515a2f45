#include <tessera/parallel/replicas/replica_teams.h>

#include <tessera/base/error.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <string>

namespace tessera::parallel {
namespace {

struct Failure {
  std::exception_ptr what;
  std::string text;
  bool input = false;
};

Failure failure_of(std::exception_ptr thrown) {
  Failure failure{.what = std::move(thrown), .text = "an exception of unknown type"};
  try {
    std::rethrow_exception(failure.what);
  } catch (const Error& error) {
    failure.text = error.what();
    failure.input = error.exit_code() == ExitCode::bad_input;
  } catch (const c10::Error& error) {
    failure.text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    failure.text = error.what();
  } catch (...) {  // has no text
  }
  return failure;
}

}  // namespace

ReplicaTeams::ReplicaTeams(std::vector<c10::Device> devices, int threads_per_replica) : devices_(std::move(devices)) {
  for (std::size_t r = 0; r < devices_.size(); ++r) {
    teams_.push_back(std::make_unique<ThreadTeam>(concat("replica ", r), threads_per_replica));
    generators_.push_back(at::detail::createCPUGenerator());
  }
}

void ReplicaTeams::run(int replicas, const std::function<void(int)>& work,
                       const std::function<std::string(int)>& name) {
  std::vector<std::future<void>> running;
  for (int r = 0; r < replicas; ++r)
    running.push_back(teams_[static_cast<std::size_t>(r)]->start([this, r, &work] {
      // Autocast would cache the cast of a weight with the graph of whichever replica made it.
      at::autocast::set_autocast_cache_enabled(false);
      const c10::OptionalDeviceGuard guard(device(r).is_cpu() ? std::nullopt : std::optional(device(r)));
      work(r);
    }));
  std::vector<Failure> failures;
  std::string text;
  for (int r = 0; r < replicas; ++r) {
    try {
      running[static_cast<std::size_t>(r)].get();
    } catch (...) {
      failures.push_back(failure_of(std::current_exception()));
      text += concat(failures.size() > 1 ? "; " : "", name(r), ": ", failures.back().text);
    }
  }
  if (failures.empty()) return;
  const bool input = std::ranges::all_of(failures, &Failure::input);
  const std::string message = concat(
      "DataParallel: ", failures.size() > 1 ? concat(failures.size(), " of ", replicas, " replicas failed: ") : "",
      text);
  try {
    std::rethrow_exception(failures.front().what);
  } catch (...) {
    if (input) std::throw_with_nested(InputError(message));
    std::throw_with_nested(Error(message));
  }
}

}  // namespace tessera::parallel
