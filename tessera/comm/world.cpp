#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/blocked.h>
#include <tessera/comm/c10d_backend.h>
#include <tessera/comm/cause.h>
#include <tessera/comm/gloo.h>
#include <tessera/comm/hier/backend.h>
#include <tessera/comm/hier/hosts.h>
#include <tessera/comm/hier/staged.h>
#include <tessera/comm/last_words.h>
#include <tessera/comm/life.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/comm/shm/backend.h>
#include <tessera/comm/watch.h>
#include <tessera/comm/world.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

namespace tessera {
namespace comm {
namespace {

using std::chrono::milliseconds;

milliseconds to_milliseconds(double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1000)); }

// The one global of the project: this process's record and world. Never destroyed: groups held by static objects, and
// threads of LibTorch, may outlive main().
struct Process {
  Life life;
  Recorder recorder{life.slot()};
  BlockedThreads blocked_threads;
  std::unique_ptr<Watcher> watcher;
  std::unique_ptr<World> world;
};
Process& process() {
  static Process& instance = *new Process;
  return instance;
}

// "local", "shm", "hier", "gloo" or "nccl"; "" when that depends on which ranks can share memory.
std::string choose_backend(const InitOptions& options, int world_size, bool one_host) {
  static const std::vector<std::string> names = {"auto", "local", "shm", "hier", "gloo", "c10d_gloo", "nccl"};
  std::string name = options.backend, origin = "InitOptions::backend";
  const char* variable = std::getenv("TESSERA_BACKEND");
  if (name == "auto" && variable != nullptr && *variable != 0) {
    name = variable;
    origin = "TESSERA_BACKEND";
  }
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const auto near = nearest(name, names);
    throw InputError(concat(origin, " = '", name, "' is not a backend; the backends are ", join(names), ".",
                            near ? concat(" Did you mean '", *near, "'?") : ""));
  }
  const bool cuda = options.device == "cuda";
  if (name == "auto") name = world_size == 1 ? "local" : cuda ? "nccl" : "";
  if (name == "local" && world_size > 1) {
    throw InputError(concat(origin, " = 'local' is for one rank; this job has ", world_size, "."));
  }
  if (name == "shm" && !one_host) {
    throw InputError(concat(origin, " = 'shm' is for ranks of one host; this job has several. Use hier."));
  }
  if ((name == "gloo" || name == "c10d_gloo" || name == "shm" || name == "hier") && cuda)
    throw InputError(concat(origin, " = '", name, "' moves CPU tensors, but the device is cuda; use nccl."));
  if (name == "nccl" && !cuda)
    throw InputError(concat(origin, " = 'nccl' moves CUDA tensors, but the device is cpu; use gloo."));
  return name;
}

/// cpu or cuda for auto: cuda when the plug-in is there and sees a device. `tells`: why not, as a warning.
std::string device_that_works(const InitOptions& options, bool tells) {
  if (options.device != "auto") return options.device;
  if (options.backend != "auto" && options.backend != "nccl" && options.backend != "local") return "cpu";
  std::string why = "this process sees no CUDA device";
  try {
    if (backend_plugin("cuda").device_count() > 0) return "cuda";
  } catch (const InputError& error) {
    why = error.what();
  }
  if (tells) log::warning("the device is auto, and the run stays on the CPU: ", why);
  return "cpu";
}

c10::Device choose_device(const std::string& name, int local_rank) {
  if (name == "cpu") return c10::Device(c10::kCPU);
  if (name != "cuda") throw InputError(concat("InitOptions::device = '", name, "'; the devices are cpu, cuda, auto."));
  const int count = backend_plugin("cuda").device_count();
  if (count == 0) throw InputError("the device is cuda, but this process sees no CUDA device (CUDA_VISIBLE_DEVICES?).");
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % count));
}

// Intra-op threads from OMP_NUM_THREADS, which launchers set; LibTorch alone would take every core in every rank.
void set_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr || *text == 0) return;
  const auto threads = parse_int(text);
  if (!threads || *threads < 1 || *threads > 4096) {
    throw InputError(concat("OMP_NUM_THREADS = '", text, "' is not a number of threads (1..4096)."));
  }
  at::set_num_threads(static_cast<int>(*threads));
}

// A peer that dies closes its sockets: writing to one must be an error with a name, not the death of this process by
// SIGPIPE (under Python the interpreter sees to that). A handler that the program installed stays.
void ignore_broken_pipes() {
  struct sigaction present{};
  if (sigaction(SIGPIPE, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

// A program that ends without shutdown() takes down what the watcher uses.
void stop_watching_at_exit() {
  static const bool once = [] {
    std::atexit([] {
      // A process that was forked from a rank has no such thread.
      if (life().slot().pid == getpid()) process().watcher.reset();
    });
    return true;
  }();
  static_cast<void>(once);
}

void start_watching(const launch::RankEnvironment& environment) {
  life().join(environment);
  recorder().attach(life().slot());
  recorder().clear();
  install_last_words();
  stop_watching_at_exit();
  process().watcher = std::make_unique<Watcher>(environment.rank);
}

}  // namespace

Recorder& recorder() { return process().recorder; }
Life& life() { return process().life; }
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
  std::string kind;
  std::vector<std::string> hosts, devices;  // per rank, for kinds that depend on it; devices: accelerators only
  bool by_place = false;                    // kinds of groups follow from the hosts of their ranks
  c10::intrusive_ptr<c10d::Store> store;    // null for one rank
  std::optional<GlooInterface> interface;   // asked for when the first Gloo group is made
  Group group;
  std::vector<std::weak_ptr<Backend>> backends;
  int groups_made = 0;

  bool one_host() const { return environment.local_world_size == environment.world_size; }
  milliseconds timeout() const { return to_milliseconds(options.timeout_seconds); }
  milliseconds connect_timeout() const { return to_milliseconds(std::min(options.timeout_seconds, 300.0)); }

  const GlooInterface& gloo_device() {
    const bool one_host = environment.local_world_size == environment.world_size;
    if (!interface) interface = gloo_interface(environment.master_addr, environment.master_port, one_host);
    return *interface;
  }

  // `rank` and `size` are those inside the group; `number` makes the store's keys unique; `kind` is the transport.
  Group make_group(const std::string& kind, const std::string& name, const std::vector<int>& ranks, int number) {
    const int size = static_cast<int>(ranks.size());
    const int rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), environment.rank) - ranks.begin());
    std::shared_ptr<Backend> backend;
    if (size == 1) {
      backend = make_local_backend(name, device);
    } else {
      auto keys = c10::make_intrusive<c10d::PrefixStore>(concat("group/", number), store);
      try {
        // NCCL refuses two ranks on one device.
        const bool staged = kind == "nccl" && shares_device(ranks);
        const std::string transport = staged ? kind_by_place(ranks) : kind;
        backend = transport == "hier" ? connect_hosts(name, rank, ranks, std::move(keys))
                                      : connect(transport, name, rank, size, std::move(keys));
        if (staged) backend = hier::make_staged_backend(std::move(backend), device);
      } catch (const InputError&) {
        throw;
      } catch (const std::exception& error) {
        throw Error(
            concat("group '", name, "' (", kind, ", rank ", rank, " of ", size, ") could not be connected within ",
                   format_real(static_cast<double>(connect_timeout().count()) / 1000, 4), " s: ", cause_text(error)));
      }
    }
    backends.push_back(backend);
    return Group(std::move(backend));
  }

  // Of the group that was made last: its collectives are compared with those of its other members from here on.
  void watch_group(int number, const std::vector<int>& members) {
    const auto id = static_cast<std::uint32_t>(number) + 1;
    if (const auto backend = backends.back().lock()) backend->set_group_id(id);
    process().watcher->add_group(id, members);
  }

  // What suits the places of these ranks; `hosts` is known.
  std::string kind_by_place(const std::vector<int>& ranks) const {
    const hier::Topology places(hosts_of(ranks));
    return places.hosts() == 1 ? "shm" : places.two_levels() ? "hier" : "gloo";
  }
  bool shares_device(const std::vector<int>& ranks) const {
    std::set<std::string> seen;
    for (const int r : ranks) {
      const auto at = static_cast<std::size_t>(r);
      if (!seen.insert(concat(hosts[at], "/", devices[at])).second) return true;
    }
    return false;
  }
  std::vector<std::string> hosts_of(const std::vector<int>& ranks) const {
    std::vector<std::string> result;
    for (const int r : ranks) result.push_back(hosts.empty() ? "" : hosts[static_cast<std::size_t>(r)]);
    return result;
  }

  std::shared_ptr<Backend> connect_hosts(const std::string& name, int rank, const std::vector<int>& ranks,
                                         const c10::intrusive_ptr<c10d::Store>& keys) {
    const auto with = [&](const char* kind) {
      return [this, kind, &keys, &name](const std::string& part, int place, int size) {
        return connect(kind, concat(name, "/", part), place, size, c10::make_intrusive<c10d::PrefixStore>(part, keys));
      };
    };
    return hier::make_backend(
        {.name = name, .rank = rank, .hosts = hosts_of(ranks), .inner = with("shm"), .outer = with("gloo")});
  }

  std::shared_ptr<Backend> connect(const std::string& kind, const std::string& name, int rank, int size,
                                   c10::intrusive_ptr<c10d::Store> keys) {
    if (kind == "shm") {
      shm::BackendOptions how;
      how.name = name;
      how.rank = rank;
      how.size = size;
      how.job_rank = environment.rank;
      how.host_ranks = environment.local_world_size;
      how.store = std::move(keys);
      how.connect_timeout = connect_timeout();
      how.timeout = timeout();
      return shm::make_backend(std::move(how));
    }
    if (kind == "gloo" || kind == "c10d_gloo") {
      auto gloo = make_gloo(keys, rank, size, gloo_device(), connect_timeout(), timeout());
      C10dOptions how;
      how.name = name;
      how.kind = kind;
      how.own_collectives = kind == "gloo";
      return make_c10d_backend(std::move(gloo), std::move(how));
    }
    BackendRequest request;
    request.backend = kind;
    request.name = name;
    request.rank = rank;
    request.size = size;
    request.device = device;
    request.store = std::move(keys);
    request.connect_timeout = connect_timeout();
    request.timeout = timeout();
    return backend_plugin("cuda").make_backend(request);
  }
};

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

World::~World() {
  Impl& impl = *impl_;
  if (recorder().any_failed() || stop_requested()) {
    process().watcher.reset();
    // The others are not coming: leave at once, the launcher ends them. A transport that still waits for a peer would
    // block in its destructor until the timeout, so the groups stay as they are until the process ends.
    for (const auto& weak : impl.backends) {
      if (auto backend = weak.lock()) new std::shared_ptr<Backend>(std::move(backend));
    }
    return;
  }
  life().set_state(launch::RankState::leaving);
  // Nobody closes connections that a slower rank still reads from, and rank 0, which may host the store, goes last.
  if (impl.store) {
    const std::vector<int> missing = leave(*impl.store, rank(), size(), impl.connect_timeout());
    for (const int r : missing) log::warning("shutdown: rank ", r, " did not leave with the others");
  }
  life().set_state(launch::RankState::left);
  process().watcher.reset();
  for (const auto& weak : impl.backends) {
    if (const auto backend = weak.lock()) backend->close();
  }
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
  std::string kind = impl_->by_place && !ranks.empty() ? "" : impl_->kind;
  if (!backend.empty()) {
    InitOptions wanted = impl_->options;
    wanted.backend = backend;
    kind = choose_backend(wanted, static_cast<int>(ranks.size()), impl_->one_host());
  }
  std::string list;
  for (const int r : ranks) list += concat(list.empty() ? "" : ",", r);
  const bool in_range = !ranks.empty() && ranks.front() >= 0 && ranks.back() < size();
  const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (!in_range || !ascending) {
    throw InputError(concat("new_group('", name, "', {", list,
                            "}): the ranks must be ascending, distinct, not empty and within 0..", size() - 1, "."));
  }
  if (kind.empty()) kind = impl_->hosts.empty() ? impl_->kind : impl_->kind_by_place(ranks);
  const int number = ++impl_->groups_made;
  const auto place = std::find(ranks.begin(), ranks.end(), rank());
  const std::string request = concat(name, " {", list, "}", backend.empty() ? "" : " over " + kind);
  const auto key = [number](int r) { return concat("group/", number, "/request/", r); };
  if (impl_->store) {
    try {
      impl_->store->set(key(rank()), request);
      // Members that ask for different things would wait for each other until the timeout.
      for (const int r : place == ranks.end() ? std::vector<int>{} : ranks) {
        const auto theirs = wait_for_key(*impl_->store, key(r), impl_->connect_timeout());
        if (!theirs) {
          throw Error(concat("new_group: ", request, " (group number ", number, "): rank ", r,
                             " did not call new_group within ",
                             format_real(static_cast<double>(impl_->connect_timeout().count()) / 1000, 4),
                             " s. Every rank must call it with the same lists in the same order."));
        }
        if (*theirs != request) {
          throw Error(concat("new_group: rank ", rank(), " asks for ", request, ", rank ", r, " for ", *theirs,
                             " (group number ", number,
                             "). Every rank must call it with the same lists in the same order."));
        }
      }
    } catch (const c10::Error& error) {
      throw Error(concat("new_group: ", request, ": rank ", rank(), " lost the store: ", error.what_without_backtrace(),
                         ". Rank 0 (or the launcher) served it and has ended: look at its output."));
    }
  }
  if (place == ranks.end()) return Group();
  Group group = impl_->make_group(kind, name, ranks, number);
  impl_->watch_group(number, ranks);
  return group;
}

}  // namespace comm

comm::World& init(const InitOptions& options) { return init(launch::read_rank_environment(), options); }

comm::World& init(const launch::RankEnvironment& environment, const InitOptions& options) {
  using namespace comm;
  if (process().world) throw Error("tessera::init() was called twice in one process.");
  if (environment.world_size < 1 || environment.rank < 0 || environment.rank >= environment.world_size) {
    throw InputError(concat("rank ", environment.rank, " of ", environment.world_size, " ranks is not possible."));
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
  impl->kind = choose_backend(impl->options, environment.world_size, impl->one_host());
  impl->device = choose_device(impl->options.device, environment.local_rank);
  set_threads();
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
      impl->devices = hier::exchange_texts(*impl->store, "device", environment.rank, environment.world_size, mine,
                                           impl->connect_timeout());
    }
    impl->by_place = impl->kind.empty();
    if (impl->by_place) {  // containers with namespaces of their own may share a host's name
      impl->kind = impl->kind_by_place(everyone);
      if (impl->kind != "shm" && impl->one_host() && environment.rank == 0)
        log::info("not all ranks can share memory: collectives go over ", impl->kind);
    }
    impl->group = impl->make_group(impl->kind, "world", everyone, 0);
  } catch (const std::exception& error) {
    life().fail(error.what());
    process().watcher.reset();
    throw;
  }
  impl->watch_group(0, everyone);
  life().set_state(launch::RankState::running);
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
