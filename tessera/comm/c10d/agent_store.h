#pragma once
/// \file
/// Implements c10d's store interface on our agent's authenticated store (launch/store/store_client.h); Gloo and NCCL
/// rendezvous through it.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/launch/store/store_client.h>

#include <memory>

namespace tessera::comm {

/// Behaves like c10d::TCPStore in everything that c10d relies on (waits, compareSet on absent keys, numbers as text),
/// except that getNumKeys counts only keys that were set. Thread-safe; a waiting thread does not block others. A
/// timeout throws c10::DistStoreError naming the missing keys, a lost store c10::DistNetworkError naming host:port and
/// the reason. A timeout of zero waits forever (c10d::Store::kNoTimeout).
class AgentStore final : public c10d::Store {
 public:
  AgentStore(std::shared_ptr<launch::StoreClient> client, std::chrono::milliseconds timeout);

  /// Shares the connections, but has its own timeout.
  c10::intrusive_ptr<c10d::Store> clone() override;

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }
  std::vector<std::string> listKeys() override;

 private:
  std::chrono::milliseconds patience() const;

  std::shared_ptr<launch::StoreClient> client_;
};

}  // namespace tessera::comm
