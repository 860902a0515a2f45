#include <tessera/launch/doctor/meeting.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/processor.h>
#include <tessera/base/text.h>
#include <tessera/base/version.h>
#include <tessera/launch/store/store_client.h>
#include <tessera/launch/store/store_server.h>

namespace tessera::launch {

bool can_meet(const RankEnvironment& environment) {
  return environment.world_size > 1 && !environment.store_address.empty();
}

HostReport report_of(const Readings& readings) {
  HostReport report;
  report.host = readings.host;
  report.version = concat("tessera ", version_major, ".", version_minor, ".", version_patch);
  report.processor = processor_name();
  report.processors = readings.processors;
  if (!readings.core_seconds.empty()) {
    std::vector<double> seconds = readings.core_seconds;
    std::sort(seconds.begin(), seconds.end());
    report.core_seconds = seconds[seconds.size() / 2];
  }
  report.alone = diagnose(readings);
  return report;
}

std::optional<Allocation> meet(const RankEnvironment& environment, const HostReport* own,
                               std::chrono::milliseconds patience) {
  StoreClientOptions options;
  options.host = environment.store_address;
  options.port = environment.store_port;
  options.secret = secret_from_fd(environment.secret_fd);
  options.generation = environment.generation;
  StoreClient store(std::move(options));
  const std::string prefix = generation_prefix(environment.generation) + "doctor/";

  const auto key = [&](int rank) { return concat(prefix, "report/", rank); };
  store.set(key(environment.rank), own == nullptr ? "" : text_of(*own));
  if (own == nullptr) return std::nullopt;
  std::vector<std::string> keys;
  for (int rank = 0; rank < environment.world_size; ++rank) keys.push_back(key(rank));
  const std::vector<std::string> reports = store.multi_get(keys, patience);

  Allocation allocation;
  LinkOptions links;
  for (int rank = 0; rank < environment.world_size; ++rank) {
    const std::string& report = reports[static_cast<std::size_t>(rank)];
    if (report.empty()) continue;
    if (rank == environment.rank) links.host = static_cast<int>(allocation.hosts.size());
    allocation.hosts.push_back(report_from(report));
  }
  links.hosts = static_cast<int>(allocation.hosts.size());
  links.address = address_towards(environment.store_address);
  links.key_prefix = prefix;
  allocation.links = measure_links(store, links);

  // When the first rank exits with a failure, its agent ends all others; so that rank waits until the others have read
  // their data.
  store.add(prefix + "left", 1);
  if (links.host == 0)
    for (const auto end = std::chrono::steady_clock::now() + patience; std::chrono::steady_clock::now() < end;) {
      if (store.add(prefix + "left", 0) == links.hosts) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  return allocation;
}

}  // namespace tessera::launch
