#include <tessera/base/system/endpoint.h>
#include <tessera/c/handles.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/launch/store/hmac.h>

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace tessera::c {

using std::chrono::milliseconds;
using wire::Code;
using wire::Failure;

namespace {

std::atomic<Handles*> current{nullptr};

Handles* fresh() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    auto* own = new Handles;
    own->of_parent = current.load();
    current.store(own);
  });
  (void)registered;
  return new Handles;
}

const tessera_options& defaults() {
  static const tessera_options options = [] {
    tessera_options none;
    tessera_options_init(&none);
    return none;
  }();
  return options;
}

const tessera_options& checked(const tessera_options* options) {
  if (options == nullptr) return defaults();
  if (options->size != sizeof(tessera_options)) {
    throw Failure(Code::invalid, concat("options.size is ", options->size, " instead of ", sizeof(tessera_options),
                                        ": call tessera_options_init()."));
  }
  if (options->timeout_ms < 0 || options->connect_timeout_ms < 0) throw Failure(Code::invalid, "a negative timeout.");
  return *options;
}

wire::WorldOptions world_options(const tessera_options& options, const char* name, int rank, int size) {
  wire::WorldOptions result;
  result.name = text_or(name, "tessera");
  result.rank = rank;
  result.size = size;
  if (options.timeout_ms > 0) result.timeout = milliseconds(options.timeout_ms);
  if (options.connect_timeout_ms > 0) result.connect_timeout = milliseconds(options.connect_timeout_ms);
  std::string transport = text_or(options.transport, "auto"), origin = "";
  const char* const variable = std::getenv("TESSERA_TRANSPORT");
  if (transport == "auto" && variable != nullptr && *variable != 0) {
    transport = variable;
    origin = "TESSERA_TRANSPORT: ";
  }
  if (transport != "auto" && transport != "shm" && transport != "tcp" && transport != "mpi") {
    throw Failure(Code::invalid, concat(origin, "unknown transport '", transport, "'; use auto, shm, tcp or mpi."));
  }
  result.tcp = transport == "tcp";
  result.mpi = transport == "mpi";
  result.only_shared_memory = transport == "shm";
  result.address = text_or(options.address);
  result.host = text_or(options.host);
  result.local_rank = options.local_rank;
  result.local_size = options.local_size;
  if (options.local_size < 0 ||
      (options.local_size > 0 && (options.local_rank < 0 || options.local_rank >= options.local_size))) {
    throw Failure(Code::invalid, concat("options: local_rank ", options.local_rank, " is out of range for local_size ",
                                        options.local_size, "."));
  }
  if (options.join_store != 0 && options.join_store != 1) {
    throw Failure(Code::invalid, concat("options: join_store is ", options.join_store, "; it must be 0 or 1."));
  }
  return result;
}

void check_place(int rank, int size) {
  if (size < 1) throw Failure(Code::invalid, concat("a world of ", size, " ranks."));
  if (rank < 0 || rank >= size) {
    throw Failure(Code::invalid, concat("rank ", rank, " does not exist in a world of ", size, " ranks."));
  }
}

// The program ends without tessera_shutdown(): other ranks must not take this one for dead while they finish what it
// has finished.
void end_worlds() {
  if (wire::Inside::now()) return;
  std::vector<std::shared_ptr<wire::World>> open;
  handles().worlds.each([&](std::uint64_t, const WorldHandle& world) { open.push_back(world.world); });
  for (const auto& world : open) world->close();
}

tessera_world open(std::shared_ptr<wire::Store> store, wire::WorldOptions options) {
  static const int registered = std::atexit(end_worlds);
  (void)registered;
  auto world = std::make_shared<WorldHandle>();
  world->world = std::make_shared<wire::World>(std::move(store), std::move(options));
  auto all = std::make_shared<GroupHandle>();
  all->world = world->world;
  all->group = world->world->all();
  all->is_world = true;
  world->all = handles().groups.add(std::move(all));
  return handles().worlds.add(std::move(world));
}

launch::Secret secret_of(int port) {
  launch::Sha256 hash;
  const std::string text = concat("libtessera_c at port ", port);
  hash.update({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  return hash.finish();
}

class FunctionStore final : public wire::Store {
 public:
  explicit FunctionStore(const tessera_store_functions& functions) : functions_(functions) {}

  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    check("set", key, functions_.set(functions_.context, key.c_str(), value.data(), length(value)));
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    std::string value(1024, 0);
    while (true) {
      int64_t bytes = 0;
      check("get", key,
            functions_.get(functions_.context, key.c_str(), timeout.count(), value.data(), length(value), &bytes));
      if (bytes < 0)
        throw Failure(Code::store, concat("the caller's store: get '", key, "' returned ", bytes, " bytes."));
      const bool whole = bytes <= length(value);
      value.resize(static_cast<std::size_t>(bytes));
      if (whole) return value;
    }
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const std::lock_guard lock(mutex_);
    int64_t sum = 0;
    check("add", key, functions_.add(functions_.context, key.c_str(), delta, &sum));
    return sum;
  }
  void remove(const std::string& key) override {
    if (functions_.remove == nullptr) return;
    const std::lock_guard lock(mutex_);
    check("remove", key, functions_.remove(functions_.context, key.c_str()));
  }

 private:
  static int64_t length(const std::string& text) { return static_cast<int64_t>(text.size()); }
  static void check(const char* what, const std::string& key, tessera_status status) {
    if (status == TESSERA_OK) return;
    throw Failure(status == TESSERA_TIMEOUT ? Code::timeout : Code::store,
                  concat("the caller's store: ", what, " '", key, "': ", tessera_status_name(status), "."));
  }
  const tessera_store_functions functions_;
  std::mutex mutex_;
};

std::shared_ptr<wire::World> world_of(tessera_world world) { return handles().worlds.find(world)->world; }

// Returns the store specified by the launcher's environment.
std::shared_ptr<wire::Store> launchers_store(const launch::RankEnvironment& environment, milliseconds timeout) {
  wire::StorePlace place;
  place.timeout = timeout;
  if (!environment.store_address.empty()) {
    place.host = environment.store_address;
    place.port = environment.store_port;
    place.secret = launch::secret_from_fd(environment.secret_fd);
    place.generation = environment.generation;
    return wire::open_store(place);
  }
  if (environment.world_size == 1) return wire::open_memory();
  place.host = environment.master_addr;
  place.port = environment.master_port + (environment.agent_hosts_store ? 1 : 0);
  place.secret = secret_of(place.port);
  place.serve = environment.rank == 0;
  return wire::open_store(place);
}

}  // namespace

Handles& handles() {
  Handles* now = current.load(std::memory_order_acquire);
  if (now != nullptr) return *now;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (current.load() == nullptr) current.store(fresh(), std::memory_order_release);
  return *current.load();
}

}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;

extern "C" {

tessera_status tessera_options_init(tessera_options* options) {
  return guarded([&] {
    given(options, "options") = tessera_options{};
    options->size = sizeof(tessera_options);
  });
}

tessera_status tessera_init_environment(const char* name, const tessera_options* options, tessera_world* world) {
  return guarded([&] {
    tessera_world& result = given(world, "world");
    launch::RankEnvironment environment;
    try {
      environment = launch::read_rank_environment();
    } catch (const InputError& error) {
      throw Failure(Code::invalid, error.what());
    }
    wire::WorldOptions how = world_options(checked(options), name, environment.rank, environment.world_size);
    if (how.local_size == 0 && environment.local_world_size > 0) {
      how.local_rank = environment.local_rank;
      how.local_size = environment.local_world_size;
    }
    auto store = launchers_store(environment, how.connect_timeout);
    result = open(std::move(store), std::move(how));
  });
}

tessera_status tessera_init_store(const char* host, int32_t port, int32_t rank, int32_t size, const char* name,
                                  const tessera_options* options, tessera_world* world) {
  return guarded([&] {
    tessera_world& result = given(world, "world");
    given(host, "host");
    check_place(rank, size);
    if (port < 1 || port > 65535) throw Failure(Code::invalid, concat("the port is ", port, "."));
    const tessera_options& all = checked(options);
    wire::WorldOptions how = world_options(all, name, rank, size);
    wire::StorePlace place;
    place.host = bare_host(host);
    place.port = port;
    place.serve = rank == 0 && all.join_store == 0;
    place.timeout = how.connect_timeout;
    if (all.secret != nullptr) {
      std::memcpy(place.secret.data(), all.secret, place.secret.size());
    } else {
      place.secret = secret_of(port);
    }
    result = open(wire::open_store(place), std::move(how));
  });
}

tessera_status tessera_init_folder(const char* folder, int32_t rank, int32_t size, const char* name,
                                   const tessera_options* options, tessera_world* world) {
  return guarded([&] {
    tessera_world& result = given(world, "world");
    given(folder, "folder");
    check_place(rank, size);
    wire::WorldOptions how = world_options(checked(options), name, rank, size);
    result = open(wire::open_folder(folder), std::move(how));
  });
}

tessera_status tessera_init_functions(const tessera_store_functions* store, int32_t rank, int32_t size,
                                      const char* name, const tessera_options* options, tessera_world* world) {
  return guarded([&] {
    tessera_world& result = given(world, "world");
    const tessera_store_functions& functions = given(store, "store");
    if (functions.size != sizeof(tessera_store_functions)) {
      throw Failure(Code::invalid,
                    concat("store.size is ", functions.size, " instead of ", sizeof(tessera_store_functions), "."));
    }
    if (functions.set == nullptr || functions.get == nullptr || functions.add == nullptr) {
      throw Failure(Code::invalid, "a store needs set, get and add.");
    }
    check_place(rank, size);
    wire::WorldOptions how = world_options(checked(options), name, rank, size);
    result = open(std::make_shared<FunctionStore>(functions), std::move(how));
  });
}

tessera_status tessera_shutdown(tessera_world world) {
  return guarded([&] {
    const auto ended = handles().worlds.take(world, true);
    handles().groups.end_if([&](const GroupHandle& group) { return group.world == ended->world; });
    ended->world->close();
  });
}

tessera_status tessera_rank(tessera_world world, int32_t* rank) {
  return guarded([&] { given(rank, "rank") = world_of(world)->rank(); });
}
tessera_status tessera_size(tessera_world world, int32_t* size) {
  return guarded([&] { given(size, "size") = world_of(world)->size(); });
}
tessera_status tessera_local_rank(tessera_world world, int32_t* rank) {
  return guarded([&] { given(rank, "rank") = world_of(world)->local_rank(); });
}
tessera_status tessera_local_size(tessera_world world, int32_t* size) {
  return guarded([&] { given(size, "size") = world_of(world)->local_size(); });
}
tessera_status tessera_host_count(tessera_world world, int32_t* hosts) {
  return guarded([&] { given(hosts, "hosts") = world_of(world)->host_count(); });
}
tessera_status tessera_host_of(tessera_world world, int32_t rank, int32_t* host) {
  return guarded([&] {
    const auto found = world_of(world);
    check_place(rank, found->size());
    given(host, "host") = found->host_of(rank);
  });
}
tessera_status tessera_host_name(tessera_world world, int32_t host, char* buffer, int64_t capacity, int64_t* needed) {
  return guarded([&] {
    const auto found = world_of(world);
    if (host < 0 || host >= found->host_count()) {
      throw Failure(Code::invalid, concat("host ", host, " does not exist; the world has ", found->host_count(), "."));
    }
    copy_out(found->host_name(host), buffer, capacity, needed);
  });
}

tessera_status tessera_store_set(tessera_world world, const char* key, const void* value, int64_t bytes) {
  return guarded([&] {
    const auto found = world_of(world);
    given(key, "key");
    if (bytes < 0 || bytes > (int64_t{64} << 20)) throw Failure(Code::invalid, concat("a value of ", bytes, " bytes."));
    if (bytes > 0 && value == nullptr) throw Failure(Code::invalid, "value is null.");
    found->set(key, bytes == 0 ? "" : std::string(static_cast<const char*>(value), static_cast<std::size_t>(bytes)));
  });
}
tessera_status tessera_store_get(tessera_world world, const char* key, int64_t timeout_ms, void* value,
                                 int64_t capacity, int64_t* bytes) {
  return guarded([&] {
    const auto found = world_of(world);
    given(key, "key");
    int64_t& length = given(bytes, "bytes");
    if (capacity < 0 || timeout_ms < 0) throw Failure(Code::invalid, "a negative capacity or timeout.");
    if (capacity > 0 && value == nullptr) throw Failure(Code::invalid, "value is null.");
    const std::string text = found->get(key, milliseconds(timeout_ms));
    length = static_cast<int64_t>(text.size());
    if (capacity > 0) std::memcpy(value, text.data(), std::min(text.size(), static_cast<std::size_t>(capacity)));
  });
}
tessera_status tessera_store_add(tessera_world world, const char* key, int64_t delta, int64_t* sum) {
  return guarded([&] {
    const auto found = world_of(world);
    given(key, "key");
    const int64_t result = found->add(key, delta);
    if (sum != nullptr) *sum = result;
  });
}
tessera_status tessera_store_remove(tessera_world world, const char* key) {
  return guarded([&] {
    const auto found = world_of(world);
    found->remove(&given(key, "key"));
  });
}

}  // extern "C"
