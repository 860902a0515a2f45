#include <tessera/base/text.h>
#include <tessera/wire/failure.h>
#include <tessera/wire/store.h>

#include <condition_variable>
#include <map>
#include <mutex>

namespace tessera::wire {
namespace {

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
      throw Failure(Code::timeout, concat("nobody set '", key, "' within ", timeout.count(), " ms."));
    }
    return values_[key];
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    const auto number = value.empty() ? 0 : parse_int(value);
    if (!number) throw Failure(Code::store, concat("the value of '", key, "' is not a number."));
    value = std::to_string(*number + delta);
    changed_.notify_all();
    return *number + delta;
  }
  void remove(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> open_memory() { return std::make_shared<MemoryStore>(); }

}  // namespace tessera::wire
