#pragma once
/// \file
/// Gloo process groups (TCP between CPU processes): LibTorch's c10d::ProcessGroupGloo behind one function.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace tessera::comm {

/// The local interface that Gloo listens on, given by its name or its address.
struct GlooInterface {
  std::string name;     ///< "eth0"; empty: use address
  std::string address;  ///< "127.0.0.1"
};

/// Returns 127.0.0.1 if every rank is on this host or the master's address is a loopback address; else
/// GLOO_SOCKET_IFNAME if set; else the local address of the route to the master. Throws InputError if only a loopback
/// address is found.
GlooInterface gloo_interface(const std::string& master_addr, int master_port, bool one_host);

/// Connects `size` ranks through the store (keys must be unique to this group: pass a PrefixStore). `connect_timeout`
/// bounds the connection phase, `timeout` each collective.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const GlooInterface& interface, std::chrono::milliseconds connect_timeout,
                                            std::chrono::milliseconds timeout);

}  // namespace tessera::comm
