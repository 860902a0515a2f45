// libFuzzer entry for host lists: for any bytes the hostfile, its filters, Slurm's node lists and task counts give
// valid values or an InputError that names the place. The first byte chooses.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/launch/fleet/hostfile.h>

namespace {

using namespace tessera::launch;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const std::vector<HostSlots>& hosts, bool whole) {
  require(!hosts.empty());
  std::set<std::string> names;
  for (const HostSlots& host : hosts) {
    require(is_host_name(host.name) && names.insert(host.name).second && !host.slots.empty());
    require(std::set<int>(host.slots.begin(), host.slots.end()).size() == host.slots.size());
    for (int slot : host.slots) require(slot >= 0 && slot < host.slots_of_host);
    require(!whole || static_cast<int>(host.slots.size()) == host.slots_of_host);
  }
}

void filters(const std::string& filter) {
  const auto hosts = parse_hostfile("a slots=2\nb-1 slots=3\nc.d slots=1\n", "fixed");
  for (const bool include : {true, false}) {
    try {
      check(filter_hosts(hosts, include ? filter : "", include ? "" : filter), filter.empty());
    } catch (const tessera::InputError& error) {
      require(std::string_view(error.what()).starts_with(include ? "--include" : "--exclude"));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  const char* beginning = "";
  try {
    switch (data[0] % 4) {
      case 0:
        beginning = "fuzzed:";
        check(parse_hostfile(text, "fuzzed"), true);
        break;
      case 1:
        filters(text);
        break;
      case 2: {
        beginning = "Slurm node list";
        const auto hosts = expand_node_list(text);
        require(hosts.size() <= 65'536);
        for (const std::string& host : hosts) require(is_host_name(host));
        break;
      }
      default: {
        beginning = "Slurm tasks per node";
        const auto counts = expand_task_counts(text);
        require(!counts.empty() && counts.size() <= 65'536);
        for (int count : counts) require(count >= 0);
      }
    }
  } catch (const tessera::InputError& error) {
    require(std::string_view(error.what()).starts_with(beginning));
  }
  return 0;
}
