#include <tessera/base/system/quiet_thread.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/store/store_client.h>
#include <tessera/launch/store/store_server.h>
#include <tessera/wire/failure.h>
#include <tessera/wire/other_threads.h>
#include <tessera/wire/store.h>

#include <poll.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <thread>

namespace tessera::wire {
namespace {

template <class Request>
auto asked(const Request& request) {
  try {
    return request();
  } catch (const launch::StoreTimeout& error) {
    throw Failure(Code::timeout, error.what());
  } catch (const Error& error) {
    throw Failure(Code::store, error.what());
  }
}

class ClientStore final : public Store {
 public:
  explicit ClientStore(launch::StoreClientOptions options)
      : prefix_(options.generation < 0 ? "" : launch::generation_prefix(options.generation)),
        client_(asked([&] { return std::make_unique<launch::StoreClient>(std::move(options)); })) {}

  void set(const std::string& key, const std::string& value) override {
    asked([&] { client_->set(prefix_ + key, value); });
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    return asked([&] { return client_->get(prefix_ + key, timeout); });
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return asked([&] { return client_->add(prefix_ + key, delta); });
  }
  void remove(const std::string& key) override {
    asked([&] { client_->erase(prefix_ + key); });
  }

 private:
  const std::string prefix_;
  std::unique_ptr<launch::StoreClient> client_;
};

// Stores served by this process, by host and port. A child after fork() serves none.
struct Served {
  pid_t pid = getpid();
  std::mutex mutex;
  std::map<std::pair<std::string, int>, launch::Secret> places;
};

Served& served() {
  static std::mutex mutex;
  static Served* all = new Served;
  const std::lock_guard lock(mutex);
  if (all->pid != getpid()) all = new Served;
  return *all;
}

void serve(std::shared_ptr<launch::StoreServer> server) {
  while (true) {
    pollfd ready{server->fd(), POLLIN, 0};
    poll(&ready, 1, 100);
    server->turn();
  }
}

void serve_if_new(const StorePlace& place) {
  Served& all = served();
  const std::lock_guard lock(all.mutex);
  const auto found = all.places.find({place.host, place.port});
  if (found != all.places.end()) {
    if (found->second == place.secret) return;
    throw Failure(Code::invalid,
                  concat("this process serves a store at ", place.host, ":", place.port, " with a different secret."));
  }
  launch::StoreOptions options;
  options.address = place.host;
  options.port = place.port;
  options.secret = place.secret;
  auto server = asked([&] { return std::make_shared<launch::StoreServer>(options); });
  quiet_thread(helper_thread, [server = std::move(server)] { serve(server); }).detach();
  all.places[{place.host, place.port}] = place.secret;
}

}  // namespace

std::shared_ptr<Store> open_store(const StorePlace& place) {
  if (place.serve) serve_if_new(place);
  launch::StoreClientOptions options;
  options.host = place.host;
  options.port = place.port;
  options.secret = place.secret;
  options.generation = place.generation;
  options.connect_timeout = place.timeout;
  return std::make_shared<ClientStore>(std::move(options));
}

}  // namespace tessera::wire
