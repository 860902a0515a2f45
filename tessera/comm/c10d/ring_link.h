#pragma once
/// \file
/// A Link (executor.h) over the sends and receives of a c10d::Backend for CPU tensors (Gloo).

#include <tessera/wire/ring/executor.h>

namespace c10d {
class Backend;
}

namespace tessera::comm {
class MessageWaiter;
}

namespace tessera::comm::ring {

using namespace wire::ring;

/// Tags from this value up are reserved for the collectives of this folder; callers use lower ones.
constexpr int first_own_tag = 1 << 30;
/// A tag that no sender uses.
constexpr int abort_tag = first_own_tag + (1 << 20);

class C10dLink final : public Link {
 public:
  /// All messages use `tag`. The backend and the waiter must outlive the link.
  C10dLink(c10d::Backend& backend, MessageWaiter& waiter, int tag) : backend_(backend), waiter_(waiter), tag_(tag) {}

  std::unique_ptr<Message> send(int peer, const void* data, std::size_t bytes) override;
  std::unique_ptr<Message> recv(int peer, void* data, std::size_t bytes) override;

 private:
  c10d::Backend& backend_;
  MessageWaiter& waiter_;
  int tag_;
};

}  // namespace tessera::comm::ring
