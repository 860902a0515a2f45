// A group of one rank: each operation works on its own memory.
#include <tessera/wire/transport.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace tessera::wire {
namespace {

class Ended final : public Pending {
 public:
  bool wait_until(Clock::time_point) override { return true; }
  bool poll() override { return true; }
};

class LocalTransport final : public Transport {
 public:
  const char* name() const override { return "local"; }

  std::shared_ptr<Pending> start(Operation operation) override {
    check();
    if (operation.input != nullptr && operation.output != nullptr && operation.input != operation.output &&
        operation.part_bytes > 0) {
      std::memmove(operation.output, operation.input, operation.part_bytes);
    }
    return std::make_shared<Ended>();
  }

  void fail(const std::string& reason, Code code) override {
    const std::lock_guard lock(mutex_);
    if (code_ != Code::ok) return;
    reason_ = concat("the group failed before: ", reason);
    code_ = code;
  }
  void check() const override {
    const std::lock_guard lock(mutex_);
    if (code_ != Code::ok) throw Failure(code_, reason_);
  }
  void close() override {
    const std::lock_guard lock(mutex_);
    code_ = Code::shut_down;
    reason_ = "the group was closed by shutdown()";
  }

 private:
  mutable std::mutex mutex_;
  Code code_ = Code::ok;
  std::string reason_;
};

}  // namespace

std::shared_ptr<Transport> make_local(const Place&) { return std::make_shared<LocalTransport>(); }

}  // namespace tessera::wire
