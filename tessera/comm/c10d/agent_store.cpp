#include <ATen/core/Tensor.h>

#include <tessera/comm/c10d/agent_store.h>

#include <utility>

namespace tessera::comm {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

// Rethrows our errors as the types that c10d's users catch.
template <class F>
auto translated(const F& request) {
  try {
    return request();
  } catch (const launch::StoreTimeout& error) {
    C10_THROW_ERROR(DistStoreError, error.what());
  } catch (const launch::StoreLost& error) {
    C10_THROW_ERROR(DistNetworkError, error.what());
  } catch (const Error& error) {
    C10_THROW_ERROR(DistStoreError, error.what());
  }
}

std::chrono::milliseconds or_endless(std::chrono::milliseconds timeout) {
  return timeout == c10d::Store::kNoTimeout ? std::chrono::milliseconds(-1) : timeout;
}

}  // namespace

AgentStore::AgentStore(std::shared_ptr<launch::StoreClient> client, std::chrono::milliseconds timeout)
    : Store(timeout), client_(std::move(client)) {}

std::chrono::milliseconds AgentStore::patience() const { return or_endless(timeout_); }

c10::intrusive_ptr<c10d::Store> AgentStore::clone() { return c10::make_intrusive<AgentStore>(client_, timeout_); }

void AgentStore::set(const std::string& key, const Bytes& value) {
  translated([&] { client_->set(key, to_text(value)); });
}

Bytes AgentStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  return translated([&] { return to_bytes(client_->compare_set(key, to_text(expected), to_text(desired))); });
}

Bytes AgentStore::get(const std::string& key) {
  return translated([&] { return to_bytes(client_->get(key, patience())); });
}

std::int64_t AgentStore::add(const std::string& key, std::int64_t value) {
  return translated([&] { return client_->add(key, value); });
}

bool AgentStore::deleteKey(const std::string& key) {
  return translated([&] { return client_->erase(key); });
}

bool AgentStore::check(const std::vector<std::string>& keys) {
  return translated([&] { return client_->check(keys); });
}

std::int64_t AgentStore::getNumKeys() {
  return translated([&] { return client_->num_keys(); });
}

void AgentStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void AgentStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  translated([&] { client_->wait(keys, or_endless(timeout)); });
}

void AgentStore::append(const std::string& key, const Bytes& value) {
  translated([&] { client_->append(key, to_text(value)); });
}

std::vector<Bytes> AgentStore::multiGet(const std::vector<std::string>& keys) {
  return translated([&] {
    std::vector<Bytes> values;
    for (const std::string& value : client_->multi_get(keys, patience())) values.push_back(to_bytes(value));
    return values;
  });
}

void AgentStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  translated([&] {
    std::vector<std::string> texts;
    for (const Bytes& value : values) texts.push_back(to_text(value));
    client_->multi_set(keys, texts);
  });
}

std::vector<std::string> AgentStore::listKeys() {
  return translated([&] { return client_->list(""); });
}

}  // namespace tessera::comm
