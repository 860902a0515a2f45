// The backend `mpi`: collectives of a cluster's own MPI library (wire/mpi). CPU tensors.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/comm/watch.h>
#include <tessera/comm/wired.h>
#include <tessera/wire/transport.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>

namespace tessera::comm {
namespace {

class TransportPending final : public Pending {
 public:
  explicit TransportPending(std::shared_ptr<wire::Pending> pending) : pending_(std::move(pending)) {}
  void wait() override { pending_->wait_until(wire::Clock::time_point::max()); }
  bool done() override {
    try {
      return pending_->poll();
    } catch (const std::exception&) {
      return true;  // wait() throws it
    }
  }

 private:
  std::shared_ptr<wire::Pending> pending_;
};

class MpiBackend final : public WiredBackend {
 public:
  MpiBackend(const BackendRequest& request, std::shared_ptr<wire::Transport> transport)
      : WiredBackend(request.name, std::string(layout::Mpi::row.name), request.rank, request.size, c10::kCPU),
        transport_(std::move(transport)),
        timeout_(request.timeout) {}

  void abort(const std::string& why) override { transport_->fail(why, wire::Code::aborted); }
  void close() override { transport_->close(); }

 private:
  Started begin(wire::Operation operation) override {
    operation.timeout = timeout_;
    return std::make_shared<TransportPending>(transport_->start(std::move(operation)));
  }
  Started post(wire::Operation operation) override { return begin(std::move(operation)); }

  std::shared_ptr<wire::Transport> transport_;
  std::chrono::milliseconds timeout_;
};

}  // namespace
}  // namespace tessera::comm

namespace tessera {

std::shared_ptr<comm::Backend> layout::Mpi::make(const comm::BackendRequest& request) {
  wire::Place place;
  place.name = request.name;
  place.rank = request.rank;
  place.size = request.size;
  place.world_rank = request.environment.rank;
  place.ranks.resize(static_cast<std::size_t>(request.size));
  std::iota(place.ranks.begin(), place.ranks.end(), 0);
  place.timeout = request.timeout;
  place.connect_timeout = request.connect_timeout;
  place.stop_requested = [] { return comm::stop_requested(); };
  place.exchange = [&](const std::string& what, const std::string& mine) {
    return comm::exchange_texts(*request.store, what, request.rank, request.size, mine, request.connect_timeout);
  };
  return std::make_shared<comm::MpiBackend>(request, wire::make_mpi(place));
}

}  // namespace tessera
