#pragma once
/// \file
/// What a transport implements. Users call Group (group.h), which validates, numbers and records, then calls a Backend.

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
  /// Blocks until the result is in the output tensor; throws any std::exception when it failed. Called at most once at
  /// a time, and not again after it returned or threw.
  virtual void wait() = 0;
  /// True when wait() would not block.
  virtual bool done() = 0;
};

/// One rank's end of a group. Arguments are already validated: contiguous tensors on device(), equal dtypes, sizes that
/// fit, root and peer in range (a peer is never this rank), reductions with a dtype that can_reduce() and at least one
/// element in every tensor except for all_to_all with splits. nullptr as result = already done. Tensors must be kept
/// alive by the Pending.
class Backend {
 public:
  using Started = std::shared_ptr<Pending>;

  /// `name` is the group's, `kind` the transport's ("gloo"): what the row of that name can do (layout/backends.h), this
  /// one can, and a kind that is in no row can do nothing but the collectives.
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

  /// Called with the record of the operation that the next call on this thread starts: a transport may compare it with
  /// the other ranks' (a mismatch is an error at once, with both texts).
  virtual void announce(const launch::Entry& entry);

  virtual Started broadcast(at::Tensor tensor, int root) = 0;
  virtual Started reduce(at::Tensor tensor, int root, Reduction op) = 0;
  virtual Started all_reduce(at::Tensor tensor, Reduction op) = 0;
  virtual Started scatter(at::Tensor output, at::Tensor input, int root) = 0;
  virtual Started gather(at::Tensor output, at::Tensor input, int root) = 0;
  virtual Started all_gather(at::Tensor output, at::Tensor input) = 0;
  virtual Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) = 0;
  /// Group's accumulate and accumulate_scatter. Here: slices by all_to_all, folded in rank order, all_gather; done when
  /// they return. A transport that folds itself overrides them and keeps the order (kernels/cpu/reduce.h).
  virtual Started accumulate(at::Tensor accumulator, at::Tensor input);
  virtual Started accumulate_scatter(at::Tensor accumulator, at::Tensor input);
  /// Splits in elements (not rows), one per peer, never empty.
  virtual Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                             std::vector<std::int64_t> input_splits) = 0;
  virtual Started send(at::Tensor tensor, int destination, int tag) = 0;
  virtual Started recv(at::Tensor tensor, int source, int tag) = 0;
  virtual Started barrier() = 0;

  /// Called when an operation of the group has failed, with the error's text: ends what still waits or runs, on this
  /// rank and on the others, which would wait for ever. Their errors say `why` where the transport can tell it. Later
  /// operations throw. Once or several times, on any thread; does not block.
  virtual void abort(const std::string& why);

  /// Leaves the group: connections are closed; later operations throw. Called by shutdown(); handles may live on.
  virtual void close() = 0;

  /// Numbers for the record (Group's business): collectives, and send/recv separately, so that the former agree between
  /// ranks.
  std::uint64_t take_sequence(bool collective) { return collective ? collectives_++ : messages_++; }
  /// Hash of the fingerprints of all collectives so far, this one included; of groups that share connections, whose
  /// order counts, of those of both.
  virtual std::uint64_t extend_chain(std::uint64_t fingerprint) {
    return chain_ = (chain_ ^ fingerprint) * 0x9e3779b97f4a7c15ULL + 1;
  }
  /// The same ranks for tensors of the host, beside a device's group: made at the first call, which is collective then.
  /// nullptr: there is none (the host's own group, an adopted one).
  std::shared_ptr<Backend> host();
  void set_host(std::function<std::shared_ptr<Backend>()> make) { make_host_ = std::move(make); }  ///< World's business

  /// The group's number in the job (World's business), equal on all its ranks; 0 for an adopted one.
  std::uint32_t group_id() const { return group_id_; }
  void set_group_id(std::uint32_t id) { group_id_ = id; }

 private:
  std::string name_, kind_;
  int rank_, size_;
  c10::Device device_;
  Capabilities capabilities_;
  std::uint64_t collectives_ = 0, messages_ = 0, chain_ = 0;
  std::uint32_t group_id_ = 0;
  std::function<std::shared_ptr<Backend>()> make_host_;  // empty: host() is known, or there is none
  std::shared_ptr<Backend> host_;
};

/// What a factory of the table of backends makes one end of a group from. Collective over the group's ranks: throws
/// Error when a peer does not come or cannot be reached, InputError for what the backend is not for.
struct BackendRequest {
  std::string name;  ///< the group's, for texts
  int rank = 0, size = 1;
  c10::Device device = c10::kCPU;         ///< with index
  std::vector<std::string> hosts = {};    ///< per rank in the group: equal texts can share memory
  launch::RankEnvironment environment;    ///< this process's place in the job
  c10::intrusive_ptr<c10d::Store> store;  ///< keys are unique to this group
  std::chrono::milliseconds connect_timeout{300'000};
  std::chrono::milliseconds timeout{1'800'000};  ///< how long a collective may take
};

/// One rank: copies. Any device.
std::shared_ptr<Backend> make_local_backend(const std::string& name, c10::Device device);

const char* reduction_name(Reduction op);

}  // namespace tessera::comm
