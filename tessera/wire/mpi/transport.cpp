// An MPI group as a Transport.
#include <tessera/wire/mpi/collectives.h>
#include <tessera/wire/tasks.h>

#include <utility>

namespace tessera::wire {
namespace {

using mpi::Channel;

struct MpiGroup {
  explicit MpiGroup(const Place& place) : channel(place) {}
  Channel channel;
  const std::shared_ptr<ring::Scratch> scratch = std::make_shared<ring::Scratch>();
  Tasks tasks;  // destroyed first: its thread uses the other members
};

class MpiCollective final : public Pending {
 public:
  MpiCollective(std::shared_ptr<MpiGroup> group, std::shared_ptr<Tasks::Task> task)
      : group_(std::move(group)), task_(std::move(task)) {}
  bool wait_until(Clock::time_point until) override { return group_->tasks.wait_until(*task_, until); }
  bool poll() override { return group_->tasks.ended(*task_); }

 private:
  std::shared_ptr<MpiGroup> group_;
  std::shared_ptr<Tasks::Task> task_;
};

class MpiMessage final : public Pending {
 public:
  MpiMessage(std::shared_ptr<MpiGroup> group, mpi::Handle posted, const Operation& operation)
      : group_(std::move(group)),
        posted_(std::move(posted)),
        patience_{operation.entry.op == launch::Op::send ? "to receive it" : "to send it", operation.timeout} {}
  ~MpiMessage() override { group_->channel.forget(posted_); }
  bool wait_until(Clock::time_point until) override {
    mpi::Patience patience = patience_;
    patience.until = until;
    try {
      return group_->channel.wait(*posted_, patience);
    } catch (const std::exception& error) {
      group_->channel.forget(posted_);
      group_->channel.fail(error.what(), code_of(error));
      throw;
    }
  }
  bool poll() override { return wait_until(Clock::time_point::min()); }
  int source() const override { return posted_->source; }

 private:
  std::shared_ptr<MpiGroup> group_;
  mpi::Handle posted_;
  mpi::Patience patience_;
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const Place& place) : group_(std::make_shared<MpiGroup>(place)) {}

  const char* name() const override { return "mpi"; }

  std::shared_ptr<Pending> start(Operation operation) override {
    Channel& channel = group_->channel;
    channel.check();
    const launch::Op op = operation.entry.op;
    if (op == launch::Op::send || op == launch::Op::recv) {
      auto posted = op == launch::Op::send ? channel.send(operation.root, operation.tag, operation.output,
                                                          operation.part_bytes, operation.entry, operation.keep)
                                           : channel.recv(operation.root, operation.tag, operation.output,
                                                          operation.part_bytes, operation.entry, operation.keep);
      return std::make_shared<MpiMessage>(group_, std::move(posted), operation);
    }
    auto task = group_->tasks.push([group = group_.get(), what = std::move(operation)] {
      try {
        mpi::run(what, group->channel, group->scratch);
      } catch (const std::exception& error) {
        group->channel.fail(error.what(), code_of(error));
        throw;
      }
    });
    return std::make_shared<MpiCollective>(group_, std::move(task));
  }
  void fail(const std::string& reason, Code code) override { group_->channel.fail(reason, code); }
  void check() const override { group_->channel.check(); }
  void close() override {
    group_->channel.close();
    group_->tasks.close();
    group_->channel.release();
  }

 private:
  std::shared_ptr<MpiGroup> group_;
};

}  // namespace

std::shared_ptr<Transport> make_mpi(const Place& place) { return std::make_shared<MpiTransport>(place); }

}  // namespace tessera::wire
