#include <tessera/wire/ring/collectives.h>
#include <tessera/wire/tcp/algorithms.h>

#include <memory>
#include <utility>

namespace tessera::wire::tcp {
namespace {

// The pieces of one collective. The destructor drops pieces that were posted but not waited for.
class MeshLink final : public ring::Link {
 public:
  MeshLink(Mesh& mesh, const Operation& operation) : mesh_(mesh), operation_(operation) {}

  std::unique_ptr<Message> send(int peer, const void* data, std::size_t bytes) override {
    return std::make_unique<Sent>(*this, mesh_.send(peer, -1, data, bytes, operation_.entry), "to take its part");
  }
  std::unique_ptr<Message> recv(int peer, void* data, std::size_t bytes) override {
    return std::make_unique<Sent>(*this, mesh_.recv(peer, -1, data, bytes, operation_.entry), "to give its part");
  }

 private:
  class Sent final : public Message {
   public:
    Sent(MeshLink& link, Handle posted, const char* what) : link_(link), posted_(std::move(posted)), what_(what) {}
    ~Sent() override { link_.mesh_.forget(posted_); }
    void wait() override {
      try {
        link_.mesh_.wait(posted_, {what_, link_.operation_.timeout, link_.begin_});
      } catch (...) {
        link_.mesh_.forget(posted_);
        throw;
      }
    }

   private:
    MeshLink& link_;
    Handle posted_;
    const char* what_;
  };

  Mesh& mesh_;
  const Operation& operation_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

void run(const Operation& operation, Mesh& mesh, ring::Scratch& scratch) {
  mesh.begin(operation.entry);
  MeshLink link(mesh, operation);
  ring::run(operation, {mesh.rank(), mesh.size()}, link, scratch);
}

}  // namespace tessera::wire::tcp
