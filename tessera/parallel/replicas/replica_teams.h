#pragma once
/// \file
/// The replicas' workers: one team and one random stream each. Outlives the calls, and outlives the ReplicaSet as long
/// as a graph needs it for its backward.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <tessera/parallel/replicas/thread_team.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tessera::parallel {

class ReplicaTeams {
 public:
  ReplicaTeams(std::vector<c10::Device> devices, int threads_per_replica);

  int size() const { return static_cast<int>(teams_.size()); }
  c10::Device device(int replica) const { return devices_[static_cast<std::size_t>(replica)]; }
  int threads_per_replica() const { return teams_.front()->threads(); }
  const at::Generator& generator(int replica) const { return generators_[static_cast<std::size_t>(replica)]; }

  /// Runs work(replica) for the first `replicas` replicas concurrently, on their teams, in the caller's state
  /// (ThreadTeam::start) and with their device current. After all have finished: throws an Error that names every one
  /// that failed by `name(replica)` ("replica 1 of 2"), with the first one nested (InputError when all are).
  void run(int replicas, const std::function<void(int)>& work, const std::function<std::string(int)>& name);

 private:
  std::vector<c10::Device> devices_;
  std::vector<std::unique_ptr<ThreadTeam>> teams_;
  std::vector<at::Generator> generators_;
};

}  // namespace tessera::parallel
