#pragma once
/// \file
/// The sharding engine behind tessera::Sharded: it executes the decisions of layout::Residency when operators use
/// managed parameters and when backward begins and ends. One mutex serialises everything; collectives start in the
/// order of the events and run on the backend's own thread.
///
///   forward    an operator reads parameters of unit k -> enter(): gather k, gather k+1 ahead, wait for k, drop k-1
///   backward   the same; a gradient arrives -> GradientReducer; the last one of unit k -> drop k, reduce gradients
///   end        remaining gradients are reduced, remaining units dropped; local parts' grad() hold the sums

#include <tessera/layout/residency.h>
#include <tessera/optim/norm.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/dispatch/module_units.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/sharding/flat_group.h>
#include <tessera/parallel/sharding/gradient_reducer.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera {

struct Sharded::Impl final : parallel::Materializer, parallel::BackwardListener {
  Impl(torch::nn::Module& module, ShardingOptions options);
  ~Impl() override;

  void enter(std::span<const std::size_t> units, bool writes, const char* op) override;
  void leave(std::span<const std::size_t> units) noexcept override;
  void backward_begin() override;
  void backward_end() override;
  void backward_failed() noexcept override;

  void zero_grad();
  /// Until resume(), backward passes accumulate locally: under strategies that keep whole gradients (no_sync), or under
  /// all.
  void pause(bool under_all_strategies = false);
  void resume(bool under_all_strategies = false);
  void reduce();
  double grad_norm();
  at::Tensor step_scalars(double max_norm);
  void scale_gradients(double factor);
  /// `peers_can_read`: `held` are parts of the shards, which peers read in place; otherwise copies are sent, a few at a
  /// time.
  void deliver(const std::vector<at::Tensor>& held, const std::vector<int>& owners, const PieceVisitor& keep,
               bool peers_can_read) const;
  /// Gathers and pins units until release_held(); `writable`: operators may change the parameters until then.
  void hold(std::span<const std::size_t> units, bool writable);
  void release_held(std::span<const std::size_t> units, bool write_back);
  std::vector<std::size_t> units_with(const std::vector<std::string>& names) const;
  void restore();
  void end_pass();
  std::vector<ShardingUnit> table() const;
  std::vector<std::vector<std::string>> buckets() const;
  ShardingMemory memory() const;
  [[noreturn]] void throw_not_finite(double norm);

  /// Whether nothing is managed, so that the user sees the module's own parameters and gradients (DDP, or one rank).
  bool plain() const { return groups_.empty(); }

  torch::nn::Module& module_;
  ShardingOptions options_;
  const StrategyRow& strategy_;
  parallel::ModuleParameters parameters_;
  parallel::ShardingContext context_;
  parallel::WriteWatcher writes_{[this] { shards_written(); }};
  parallel::GroupingPlan plan_;
  std::vector<std::unique_ptr<parallel::FlatGroup>> groups_;
  std::vector<ShardedParameter> local_;  ///< parts of trained parameters, in registration order
  std::vector<std::size_t> frozen_;      ///< indices into parameters_
  comm::Group tensor_group_;  ///< the tp ranks that hold the other parts of cut parameters; empty: no parameter is cut
  std::vector<bool>
      counted_;  ///< indexed like local_: whether norms count this rank's values, rather than another rank's
  std::unique_ptr<parallel::GradientReducer> gradients_;  ///< null on one rank that shards nothing
  std::int64_t offloaded_bytes_ = 0;

 private:
  std::vector<optim::GradientPiece> gradient_pieces() const;
  std::vector<comm::Group> norm_groups() const;  ///< the groups over which squares are added, one after another
  void choose_groups();
  void share_values();
  void make_groups();
  void fill_unmanaged(bool sync);
  void make_reducer();
  parallel::GradientReducerOptions reducer_options(std::shared_ptr<parallel::Compression> compression) const;
  void listen();
  // engine_checks.cpp
  void check_module() const;
  void refuse_stored_views() const;
  void check_unknown() const;
  void check_values();
  void list_local_parts();
  void find_cuts();
  void check_frozen() const;
  void move_deferred_buffers();
  void broadcast_buffers();
  void after_reduction();
  void execute(const layout::Residency::Actions& actions);
  void expire_if_changed();
  void shards_written();
  int exchange_requests(std::span<const std::size_t> wanted, bool done);
  void end_requests();
  void fail(std::exception_ptr cause);
  void require_alive() const;

  std::mutex mutex_;
  std::optional<layout::Residency> residency_;  ///< empty: plain()
  std::uint32_t seen_version_ = 0;   ///< ShardingContext::shard_version when gathered parameters were last dropped
  std::set<const void*> known_;      ///< the module's parameters at the time of wrapping
  std::vector<const void*> memory_;  ///< plain(): the parameters' addresses at the last comparison of values
  bool may_have_stepped_ = false;    ///< gradients were reduced since, so an optimizer may have stepped
  std::atomic<int> pauses_ = 0;      ///< number of open guards
  std::atomic<int> pauses_under_all_strategies_ = 0;  ///< number of AccumulateLocally guards among them
  int scopes_ = 0;                                    ///< number of open unsharded scopes
  int writable_ = 0;                                  ///< number of these scopes in which parameters may be changed
  bool failed_ = false;                               ///< a collective of this engine failed: ranks are out of step
  std::string failure_;
  std::vector<parallel::Subscription> hooks_;
  parallel::Subscription listening_;
};

}  // namespace tessera
