// A TCP group as a Transport.
#include <tessera/wire/tasks.h>
#include <tessera/wire/tcp/algorithms.h>
#include <tessera/wire/tcp/mesh.h>

#include <utility>

namespace tessera::wire {
namespace {

using tcp::Mesh;

struct Running {
  explicit Running(std::shared_ptr<Mesh> with) : mesh(std::move(with)) {}
  std::shared_ptr<Mesh> mesh;
  ring::Scratch scratch;
  Tasks tasks;  // destroyed first: its thread uses the other members
};

class PendingCollective final : public Pending {
 public:
  PendingCollective(std::shared_ptr<Running> running, std::shared_ptr<Tasks::Task> task)
      : running_(std::move(running)), task_(std::move(task)) {}
  bool wait_until(Clock::time_point until) override { return running_->tasks.wait_until(*task_, until); }
  bool poll() override { return running_->tasks.ended(*task_); }

 private:
  std::shared_ptr<Running> running_;
  std::shared_ptr<Tasks::Task> task_;
};

class PendingPost final : public Pending {
 public:
  PendingPost(std::shared_ptr<Running> running, tcp::Handle posted, const Operation& operation)
      : running_(std::move(running)),
        posted_(std::move(posted)),
        keep_(operation.keep),
        patience_{operation.entry.op == launch::Op::send ? "to receive it" : "to send it", operation.timeout} {}
  ~PendingPost() override { running_->mesh->forget(posted_); }
  bool wait_until(Clock::time_point until) override {
    tcp::Patience patience = patience_;
    patience.until = until;
    try {
      return running_->mesh->wait(posted_, patience);
    } catch (const std::exception& error) {
      running_->mesh->forget(posted_);
      running_->mesh->fail(error.what(), code_of(error));
      throw;
    }
  }
  bool poll() override { return wait_until(Clock::time_point::min()); }
  int source() const override { return posted_->source; }

 private:
  std::shared_ptr<Running> running_;
  tcp::Handle posted_;
  std::shared_ptr<void> keep_;
  tcp::Patience patience_;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::shared_ptr<Mesh> mesh) : running_(std::make_shared<Running>(std::move(mesh))) {}

  const char* name() const override { return "tcp"; }

  std::shared_ptr<Pending> start(Operation operation) override {
    Mesh& mesh = *running_->mesh;
    mesh.check();
    const launch::Op op = operation.entry.op;
    if (op == launch::Op::send || op == launch::Op::recv) {
      auto posted =
          op == launch::Op::send
              ? mesh.send(operation.root, operation.tag, operation.output, operation.part_bytes, operation.entry)
              : mesh.recv(operation.root, operation.tag, operation.output, operation.part_bytes, operation.entry);
      return std::make_shared<PendingPost>(running_, std::move(posted), operation);
    }
    auto task = running_->tasks.push([running = running_.get(), what = std::move(operation)] {
      try {
        tcp::run(what, *running->mesh, running->scratch);
      } catch (const std::exception& error) {
        running->mesh->fail(error.what(), code_of(error));
        throw;
      }
    });
    return std::make_shared<PendingCollective>(running_, std::move(task));
  }
  void fail(const std::string& reason, Code code) override { running_->mesh->fail(reason, code); }
  void check() const override { running_->mesh->check(); }
  void close() override {
    running_->mesh->close();
    running_->tasks.close();
  }

 private:
  std::shared_ptr<Running> running_;
};

}  // namespace

std::shared_ptr<Transport> make_tcp(const Place& place, const std::string& address) {
  return std::make_shared<TcpTransport>(tcp::connect(place, address));
}

}  // namespace tessera::wire
