#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/base/system/gpu.h>
#include <tessera/comm/alias.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/blocked.h>
#include <tessera/comm/cause.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/hierarchical/hosts.h>
#include <tessera/comm/hierarchical/staged.h>
#include <tessera/comm/hierarchical/topology.h>
#include <tessera/comm/last_words.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/comm/watch.h>
#include <tessera/comm/world.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace tessera {
namespace comm {
namespace {

using layout::BackendRow;
using std::chrono::milliseconds;

milliseconds to_milliseconds(double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1000)); }

// The project's only global: this process's record and world. Never destroyed: groups in static objects, and LibTorch's
// threads, may outlive main().
struct Process {
  Heartbeat heartbeat;
  Recorder recorder{heartbeat.slot()};
  BlockedThreads blocked_threads;
  std::unique_ptr<Watcher> watcher;
  std::unique_ptr<World> world;
};
Process& process() {
  static Process& instance = *new Process;
  return instance;
}

std::string list_text(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += concat(text.empty() ? "{" : ",", r);
  return text + "}";
}

void check_ranks(const std::vector<int>& ranks, const std::string& name, int world_size) {
  const bool in_range = !ranks.empty() && ranks.front() >= 0 && ranks.back() < world_size;
  const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (!in_range || !ascending) {
    throw InputError(concat("group '", name, "', ", list_text(ranks),
                            ": the list must not be empty, and its ranks must be ascending, distinct and within 0..",
                            world_size - 1, "."));
  }
}

// Returns the backend named by InitOptions::backend, or by TESSERA_BACKEND for auto; nullptr: chosen per group from the
// placement of its ranks.
const BackendRow* choose_backend(const InitOptions& options, int world_size, bool one_host) {
  const std::vector<std::string> names = layout::backend_names(/*with_comparison=*/true);
  std::string name = options.backend, origin = "InitOptions::backend";
  const char* variable = std::getenv("TESSERA_BACKEND");
  if (name == "auto" && variable != nullptr && *variable != 0) {
    name = variable;
    origin = "TESSERA_BACKEND";
  }
  if (name == "auto") return nullptr;
  const BackendRow* row = layout::find_backend(name);
  if (row == nullptr) {
    const auto near = nearest(name, names);
    throw InputError(concat(origin, " = '", name, "' is not a backend; the backends are ", join(names), ".",
                            near ? concat(" Did you mean '", *near, "'?") : ""));
  }
  using Reach = BackendRow::Reach;
  if (row->reach == Reach::one_rank && world_size > 1)
    throw InputError(concat(origin, " = '", name, "' is for one rank; this job has ", world_size, "."));
  if (row->reach == Reach::one_host && !one_host)
    throw InputError(concat(origin, " = '", name, "' is for ranks of one host; this job has several hosts. Use auto."));
  if (row->device != Device::automatic && options.device != Device::automatic && row->device != options.device)
    throw InputError(concat(origin, " = '", name, "' moves ", layout::device_text(row->device),
                            " tensors, but the device is ", options.device, "; use ",
                            layout::usual_backend(options.device), "."));
  return row;
}

template <class... Each>
std::shared_ptr<Backend> make_backend(const BackendRow& row, const BackendRequest& request, std::tuple<Each...>) {
  std::shared_ptr<Backend> made;
  static_cast<void>(((row.name == Each::row.name && (made = Each::make(request))) || ...));
  return made;
}

/// Resolves auto to cuda if the plug-in can be loaded and finds a device, else to cpu. `tells`: log the reason as a
/// warning.
Device device_that_works(const InitOptions& options, bool tells) {
  if (options.device == Device::xla)
    throw InputError(
        "device xla is for `tessera train`; your own program can compile its step with xla::open_devices()");
  if (options.device != Device::automatic) return options.device;
  const BackendRow* named = layout::find_backend(options.backend);
  if (options.backend != "auto" && (named == nullptr || named->device == Device::cpu)) return Device::cpu;
  std::string why;
  const Device found = found_device(why);
  if (tells && found == Device::cpu)
    log::write(has_gpu_driver() ? log::Level::warning : log::Level::debug,
               concat("the device is auto, and the run stays on the CPU: ", why));
  return found;
}

// Sets the intra-op threads to OMP_NUM_THREADS, which launchers set; by default, LibTorch would use every core in every
// rank.
void set_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr || *text == 0) return;
  const auto threads = parse_int(text);
  if (!threads || *threads < 1 || *threads > 4096) {
    throw InputError(concat("OMP_NUM_THREADS = '", text, "' is not a number of threads (1..4096)."));
  }
  at::set_num_threads(static_cast<int>(*threads));
}

// A dead peer closes its sockets: writing to one must be an error that names it, not a SIGPIPE that kills this process
// (Python already ignores the signal). Keeps a handler that the program installed.
void ignore_broken_pipes() {
  struct sigaction present{};
  if (sigaction(SIGPIPE, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

// A program that ends without shutdown() destroys objects that the watcher uses, so stop the watcher first.
void stop_watching_at_exit() {
  static const bool once = [] {
    std::atexit([] {
      // A process forked from a rank does not have the watcher's thread.
      if (heartbeat().slot().pid == getpid()) process().watcher.reset();
    });
    return true;
  }();
  static_cast<void>(once);
}

void start_watching(const launch::RankEnvironment& environment) {
  heartbeat().join(environment);
  recorder().attach(heartbeat().slot());
  recorder().clear();
  install_last_words();
  stop_watching_at_exit();
  process().watcher = std::make_unique<Watcher>(environment.rank);
}

}  // namespace

Recorder& recorder() { return process().recorder; }
Heartbeat& heartbeat() { return process().heartbeat; }
BlockedThreads& blocked_threads() { return process().blocked_threads; }

std::optional<std::string> explain_failure(const launch::Entry& entry) {
  const auto& watcher = process().watcher;
  return watcher ? watcher->explain(&entry, milliseconds(1000)) : stop_requested();
}

std::optional<std::string> explain_crash() {
  const auto& watcher = process().watcher;
  return watcher ? watcher->explain(nullptr, milliseconds(1000)) : stop_requested();
}

struct World::Impl {
  launch::RankEnvironment environment;
  InitOptions options;
  c10::Device device = c10::kCPU;
  const BackendRow* backend = nullptr;      // used for every group; nullptr: chosen per group from its ranks' placement
  std::vector<std::string> hosts, devices;  // per rank; devices: accelerators only
  c10::intrusive_ptr<c10d::Store> store;    // null for one rank
  Group group;
  std::vector<std::weak_ptr<Backend>> backends;
  int groups_made = 0;
  std::map<std::string, Group> splits;                             // results of split(), by request
  std::map<std::vector<int>, std::shared_ptr<Backend>> connected;  // ranks whose connections may be shared

  bool one_host() const { return environment.local_world_size == environment.world_size; }
  milliseconds timeout() const { return to_milliseconds(options.timeout_seconds); }
  milliseconds connect_timeout() const { return to_milliseconds(std::min(options.timeout_seconds, 300.0)); }

  // `rank` and `size` refer to the group; `number` makes the store's keys unique; `wanted`: nullptr: choose by
  // placement.
  Group make_group(const BackendRow* wanted, const std::string& name, const std::vector<int>& ranks, int number) {
    const layout::Placement place = placement(ranks);
    // NCCL refuses two ranks on one device: their tensors go through host memory instead.
    const bool staged = place.ranks > 1 && place.shares_device && (wanted == nullptr || wanted->device != Device::cpu);
    if (staged || wanted == nullptr || place.ranks == 1)
      wanted = layout::fitting_backend(staged ? Device::cpu : options.device, place);
    BackendRequest request;
    request.name = name;
    request.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), environment.rank) - ranks.begin());
    request.size = place.ranks;
    request.device = device;
    request.hosts = hosts_of(ranks);
    request.environment = environment;
    request.connect_timeout = connect_timeout();
    request.timeout = timeout();
    if (store) request.store = c10::make_intrusive<c10d::PrefixStore>(concat("group/", number), store);
    std::shared_ptr<Backend> made;
    const auto begin = std::chrono::steady_clock::now();
    try {
      made = make_backend(*wanted, request, layout::Backends{});
      if (staged) {
        const std::shared_ptr<Backend> host = made;
        made = hier::make_staged_backend(host, device);
        made->set_host([host] { return host; });
      } else if (!device.is_cpu() && place.ranks > 1) {
        made->set_host([this, request, row = layout::fitting_backend(Device::cpu, place)] {
          return make_host_backend(*row, request);
        });
      }
    } catch (const InputError&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(
          concat("group '", name, "' (", wanted->name, ", rank ", request.rank, " of ", request.size,
                 ") could not be connected: ", cause_text(error), " (after ",
                 format_real(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 3),
                 " s of at most ", format_real(static_cast<double>(connect_timeout().count()) / 1000, 4), " s)"));
    }
    backends.push_back(made);
    return Group(std::move(made));
  }

  // The host group that belongs to a device's group (Backend::host()).
  std::shared_ptr<Backend> make_host_backend(const BackendRow& row, BackendRequest request) {
    request.name += " (host)";
    request.device = c10::kCPU;
    request.store = c10::make_intrusive<c10d::PrefixStore>("host", request.store);
    std::shared_ptr<Backend> made = make_backend(row, request, layout::Backends{});
    backends.push_back(made);
    return made;
  }

  // Starts comparing the collectives of the group created last with its other members.
  void watch_group(int number, const std::vector<int>& members) {
    const auto id = static_cast<std::uint32_t>(number) + 1;
    if (const auto backend = backends.back().lock()) backend->set_group_id(id);
    process().watcher->add_group(id, members);
  }

  // Checks that all members make the same request, because otherwise they would wait for each other until the timeout.
  void agree_on(const std::string& what, const std::string& request, int number, const std::vector<int>& members) {
    if (!store) return;
    const auto key = [number](int r) { return concat("group/", number, "/request/", r); };
    try {
      store->set(key(environment.rank), request);
      for (const int r : members) {
        const auto theirs = wait_for_key(*store, key(r), connect_timeout());
        if (!theirs) {
          throw Error(concat(what, ": ", request, " (group number ", number, "): rank ", r, " did not call ", what,
                             " within ", format_real(static_cast<double>(connect_timeout().count()) / 1000, 4),
                             " s. Every rank must call it with the same lists in the same order."));
        }
        if (*theirs != request) {
          throw Error(concat(what, ": rank ", environment.rank, " asks for ", request, ", rank ", r, " for ", *theirs,
                             " (group number ", number,
                             "). Every rank must call it with the same lists in the same order."));
        }
      }
    } catch (const c10::Error& error) {
      throw Error(concat(what, ": ", request, ": rank ", environment.rank,
                         " lost the store: ", error.what_without_backtrace(),
                         ". Rank 0 (or the launcher) served it and has exited: look at its output."));
    }
  }

  layout::Placement placement(const std::vector<int>& ranks) const {
    std::set<std::string> seen;
    bool shared = false;
    for (const int r : ranks) {
      const auto at = static_cast<std::size_t>(r);
      if (!devices.empty()) shared |= !seen.insert(concat(hosts[at], "/", devices[at])).second;
    }
    return {static_cast<int>(ranks.size()), hier::Topology(hosts_of(ranks)).hosts(), shared};
  }
  std::vector<std::string> hosts_of(const std::vector<int>& ranks) const {
    std::vector<std::string> result;
    for (const int r : ranks) result.push_back(hosts.empty() ? "" : hosts[static_cast<std::size_t>(r)]);
    return result;
  }
};

namespace {
std::shared_ptr<Backend> throw_closed() { throw Error("the group was closed by shutdown()"); }
}  // namespace

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

World::~World() {
  Impl& impl = *impl_;
  if (recorder().any_failed() || stop_requested()) {
    process().watcher.reset();
    // The other ranks will not arrive: leave at once; the launcher ends them. A transport that still waits for a peer
    // would block in its destructor until the timeout, so the groups are leaked.
    for (const auto& weak : impl.backends) {
      if (auto backend = weak.lock()) new std::shared_ptr<Backend>(std::move(backend));
    }
    return;
  }
  heartbeat().set_state(launch::RankState::leaving);
  // No rank closes connections that a slower rank still reads from, and rank 0, which may host the store, leaves last.
  if (impl.store) {
    const std::vector<int> missing = leave(*impl.store, rank(), size(), impl.connect_timeout());
    for (const int r : missing) log::warning("shutdown: rank ", r, " did not leave with the others");
  }
  heartbeat().set_state(launch::RankState::left);
  process().watcher.reset();
  for (const auto& weak : impl.backends) {
    const auto backend = weak.lock();
    if (!backend) continue;
    backend->set_host([] { return throw_closed(); });  // handles may outlive this World
    backend->close();
  }
  impl.splits.clear();
  impl.connected.clear();
  impl.group = Group();
  impl.store.reset();
}

int World::rank() const { return impl_->environment.rank; }
int World::size() const { return impl_->environment.world_size; }
int World::local_rank() const { return impl_->environment.local_rank; }
int World::local_size() const { return impl_->environment.local_world_size; }
c10::Device World::device() const { return impl_->device; }
const Group& World::group() const { return impl_->group; }

Group World::new_group(const std::vector<int>& ranks, const std::string& name, const std::string& backend) {
  const BackendRow* row = impl_->backend;
  if (!backend.empty()) {
    InitOptions wanted = impl_->options;
    wanted.backend = backend;
    row = choose_backend(wanted, static_cast<int>(ranks.size()), impl_->one_host());
  }
  check_ranks(ranks, name, size());
  const int number = ++impl_->groups_made;
  const bool member = std::find(ranks.begin(), ranks.end(), rank()) != ranks.end();
  const std::string request = concat(name, " ", list_text(ranks), backend.empty() ? "" : " over " + backend);
  impl_->agree_on("new_group", request, number, member ? ranks : std::vector<int>{});
  if (!member) return Group();
  Group group = impl_->make_group(row, name, ranks, number);
  impl_->watch_group(number, ranks);
  return group;
}

Group World::split(const std::vector<std::vector<int>>& lists, const std::string& name) {
  Impl& impl = *impl_;
  std::string request = name;
  for (const std::vector<int>& list : lists) request += concat(" ", list_text(list));
  if (const auto made = impl.splits.find(request); made != impl.splits.end()) return made->second;

  std::vector<bool> taken(static_cast<std::size_t>(size()));
  const std::vector<int>* own = nullptr;
  int number = impl.groups_made + 1;
  const int first = number;
  impl.groups_made += static_cast<int>(lists.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    check_ranks(lists[i], name, size());
    for (const int r : lists[i]) {
      if (taken[static_cast<std::size_t>(r)])
        throw InputError(
            concat("split('", name, "'): rank ", r, " is in two of the lists:", request.substr(name.size())));
      taken[static_cast<std::size_t>(r)] = true;
      if (r != rank()) continue;
      own = &lists[i];
      number = first + static_cast<int>(i);
    }
  }
  Group group;
  if (own != nullptr) {
    const std::string own_name = concat(name, " ", own->front());
    const auto connections = impl.connected.find(*own);
    if (own->size() == 1) {
      group = Group(make_local_backend(own_name, device()));
    } else if (connections != impl.connected.end()) {
      auto alias = make_alias(connections->second, own_name);
      alias->set_host([connected = connections->second] { return connected->host(); });
      impl.backends.push_back(alias);
      impl.watch_group(number, *own);
      group = Group(std::move(alias));
    } else {
      impl.agree_on("split", request, first, *own);
      group = impl.make_group(impl.backend, own_name, *own, number);
      impl.watch_group(number, *own);
      impl.connected.emplace(*own, impl.backends.back().lock());
    }
  }
  impl.splits.emplace(std::move(request), group);
  return group;
}

}  // namespace comm

comm::World& init(const InitOptions& options) { return init(launch::read_rank_environment(), options); }

comm::World& init(const launch::RankEnvironment& environment, const InitOptions& options) {
  using namespace comm;
  if (process().world) throw Error("tessera::init() was called twice in one process.");
  if (environment.world_size < 1 || environment.rank < 0 || environment.rank >= environment.world_size) {
    throw InputError(
        concat("rank ", environment.rank, " does not exist in a world of ", environment.world_size, " ranks."));
  }
  if (!(options.timeout_seconds > 0)) {
    throw InputError(concat("InitOptions::timeout_seconds = ", options.timeout_seconds, " must be positive."));
  }
  auto impl = std::make_unique<World::Impl>();
  std::vector<int> everyone(static_cast<std::size_t>(environment.world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  impl->environment = environment;
  impl->options = options;
  impl->options.device = device_that_works(options, environment.rank == 0);
  impl->backend = choose_backend(impl->options, environment.world_size, impl->one_host());
  impl->device = open_device(impl->options.device, environment.local_rank);
  set_threads();
  ignore_file_limit_signal();
  if (environment.world_size > 1) ignore_broken_pipes();
  log::set_rank(environment.rank, environment.world_size);
  start_watching(environment);
  try {
    if (environment.world_size > 1) {
      impl->store = open_store(environment, impl->connect_timeout());
      rendezvous(*impl->store, environment, build_text(), impl->connect_timeout(), options.fingerprint);
      process().watcher->set_store(impl->store);
    }
    if (environment.world_size > 1) {
      impl->hosts =
          hier::exchange_hosts(*impl->store, environment.rank, environment.world_size, impl->connect_timeout());
    }
    if (environment.world_size > 1 && !impl->device.is_cpu()) {
      const std::string mine = backend_plugin("cuda").device_identity(impl->device.index());
      impl->devices = exchange_texts(*impl->store, "device", environment.rank, environment.world_size, mine,
                                     impl->connect_timeout());
    }
    impl->group = impl->make_group(impl->backend, "world", everyone, 0);
    // Containers with separate namespaces may have the same host name.
    if (impl->backend == nullptr && impl->device.is_cpu() && impl->one_host() && environment.rank == 0 &&
        impl->placement(everyone).hosts > 1)
      log::info("not all ranks can share memory: collectives go over ", impl->group.backend());
  } catch (const std::exception& error) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    heartbeat().fail(error.what(), known != nullptr ? known->exit_code() : ExitCode::failed);
    process().watcher.reset();
    throw;
  }
  impl->watch_group(0, everyone);
  impl->connected.emplace(everyone, impl->backends.back().lock());
  heartbeat().set_state(launch::RankState::running);
  process().world = std::make_unique<World>(std::move(impl));
  return *process().world;
}

comm::World& world() {
  if (!comm::process().world) throw Error("tessera::world(): call tessera::init() first.");
  return *comm::process().world;
}

bool initialized() { return comm::process().world != nullptr; }

void shutdown() { comm::process().world.reset(); }

}  // namespace tessera
