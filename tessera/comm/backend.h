#pragma once
/// \file
/// The interface of a transport. Users call Group (group.h), which validates, numbers and records, then calls a
/// Backend.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/launch/watch/record.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace tessera::comm {

/// A started collective.
class Pending {
 public:
  virtual ~Pending();
  /// Blocks until the result is in the output tensor; throws any std::exception if the collective failed. Never called
  /// concurrently, nor again after it has returned or thrown.
  virtual void wait() = 0;
  /// True if wait() would not block.
  virtual bool done() = 0;
};

/// One rank's end of a group. Arguments are already validated: contiguous tensors on device(), equal dtypes, sizes that
/// fit, root and peer in range (a peer is never this rank), reductions with a dtype that can_reduce() accepts and at
/// least one element in every tensor, except for all_to_all with splits. A nullptr result means already done. The
/// Pending must keep the tensors alive.
class Backend {
 public:
  using Started = std::shared_ptr<Pending>;

  /// `name` is the group's, `kind` the transport's ("gloo"). The capabilities are those of the row named `kind` in
  /// layout/backends.h; a kind without a row supports only the collectives.
  Backend(std::string name, std::string kind, int rank, int size, c10::Device device);
  virtual ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const std::string& name() const { return name_; }
  const std::string& kind() const { return kind_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  c10::Device device() const { return device_; }
  const Capabilities& capabilities() const { return capabilities_; }

  virtual bool can_reduce(at::ScalarType dtype) const = 0;

  /// Called with the record of the operation that the next call on this thread starts. A transport may compare it with
  /// the other ranks' records: a mismatch is then an immediate error that quotes both.
  virtual void announce(const launch::Entry& entry);

  virtual Started broadcast(at::Tensor tensor, int root) = 0;
  virtual Started reduce(at::Tensor tensor, int root, Reduction op) = 0;
  virtual Started all_reduce(at::Tensor tensor, Reduction op) = 0;
  virtual Started scatter(at::Tensor output, at::Tensor input, int root) = 0;
  virtual Started gather(at::Tensor output, at::Tensor input, int root) = 0;
  virtual Started all_gather(at::Tensor output, at::Tensor input) = 0;
  virtual Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) = 0;
  /// Implement Group's accumulate and accumulate_scatter. The default distributes slices with all_to_all, adds them in
  /// rank order and calls all_gather, all before it returns. A transport with its own summation overrides these and
  /// keeps the order (kernels/cpu/reduce.h).
  virtual Started accumulate(at::Tensor accumulator, at::Tensor input);
  virtual Started accumulate_scatter(at::Tensor accumulator, at::Tensor input);
  /// The splits are in elements (not rows), one per peer, and never empty.
  virtual Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                             std::vector<std::int64_t> input_splits) = 0;
  virtual Started send(at::Tensor tensor, int destination, int tag) = 0;
  virtual Started recv(at::Tensor tensor, int source, int tag) = 0;
  virtual Started barrier() = 0;

  /// Called when an operation of the group has failed, with the error's text: ends the waiting and running operations
  /// on this rank and on the others, which would otherwise wait forever. Their errors quote `why` if the transport can
  /// transmit it. Later operations throw. May be called several times, on any thread; does not block.
  virtual void abort(const std::string& why);

  /// Leaves the group: closes the connections; later operations throw. Called by shutdown(); handles may outlive it.
  virtual void close() = 0;

  /// Sequence numbers for the record (called by Group): collectives are counted separately from send/recv, so that
  /// their numbers agree between ranks.
  std::uint64_t take_sequence(bool collective) { return collective ? collectives_++ : messages_++; }
  /// Hash of the fingerprints of all collectives so far, including this one. Groups that share connections share one
  /// hash, because the order across them matters.
  virtual std::uint64_t extend_chain(std::uint64_t fingerprint) {
    return chain_ = (chain_ ^ fingerprint) * 0x9e3779b97f4a7c15ULL + 1;
  }
  /// A group of the same ranks for host tensors, next to a device's group. Created by the first call, which is
  /// collective. nullptr if this group is already the host's, or was adopted.
  std::shared_ptr<Backend> host();
  void set_host(std::function<std::shared_ptr<Backend>()> make) { make_host_ = std::move(make); }  ///< called by World

  /// The group's number in the job (set by World), equal on all its ranks; 0 for an adopted group.
  std::uint32_t group_id() const { return group_id_; }
  void set_group_id(std::uint32_t id) { group_id_ = id; }

 private:
  std::string name_, kind_;
  int rank_, size_;
  c10::Device device_;
  Capabilities capabilities_;
  std::uint64_t collectives_ = 0, messages_ = 0, chain_ = 0;
  std::uint32_t group_id_ = 0;
  std::function<std::shared_ptr<Backend>()> make_host_;  // empty: host() is already known, or does not exist
  std::shared_ptr<Backend> host_;
};

/// Arguments of a factory in the table of backends, which makes one end of a group. Factories are collective over the
/// group's ranks and throw Error if a peer does not arrive or cannot be reached, InputError for a request that the
/// backend does not support.
struct BackendRequest {
  std::string name;  ///< the group's name, for messages
  int rank = 0, size = 1;
  c10::Device device = c10::kCPU;         ///< with index
  std::vector<std::string> hosts = {};    ///< per rank of the group; ranks with equal texts can share memory
  launch::RankEnvironment environment;    ///< this process's rank, host and launcher
  c10::intrusive_ptr<c10d::Store> store;  ///< no other group uses its keys
  std::chrono::milliseconds connect_timeout{300'000};
  std::chrono::milliseconds timeout{1'800'000};  ///< limit for one collective
};

/// A group of one rank: collectives are copies. Any device.
std::shared_ptr<Backend> make_local_backend(const std::string& name, c10::Device device);

const char* reduction_name(Reduction op);

}  // namespace tessera::comm
