#pragma once
/// \file
/// The gradient reducer behind Ddp: buckets fill while backward runs and are reduced at once, in one order on every
/// rank.

#include <tessera/comm/group.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/replicas.h>
#include <tessera/parallel/sharding/bucket.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::parallel {

struct ReducerOptions {
  double first_bucket_mb = 1;                         ///< MiB
  double bucket_mb = 25;                              ///< MiB
  comm::Reduction reduction = comm::Reduction::mean;  ///< mean or sum
  bool find_unused_parameters = false;
  std::int64_t logical_shards = 0;  ///< V > 0: fixed order, see below; a multiple of the group's size
  std::shared_ptr<Compression> compression = nullptr;  ///< of what goes over the wire; not in fixed order
  double predivide_factor = 1;                         ///< f: before divided by f, after multiplied by it
  bool wait_at_once = false;                           ///< no overlap
  bool reduce_at_end = false;  ///< all reductions when backward ends, whatever was used; unused ones are tolerated
  bool check_finite = false;   ///< remember the first gradient that is not finite
};

/// The life of a backward, on every rank:
/// - autograd moves a gradient into the undefined grad() of a parameter; our hook copies it into the bucket and makes
///   grad() the view (cheaper than accumulating into zeroed views). A grad() that is the view already was accumulated
///   in place.
/// - A bucket whose gradients are all there is reduced at once; buckets start strictly in index order, so ranks agree.
/// - The end of backward starts the buckets that lack gradients (zeros are given for them), waits for all, and makes
///   grad() the reduced gradient. Parameters that no rank used keep their grad(): undefined if it was.
/// - After the first reduction, buckets are laid out anew in the order in which rank 0's gradients became ready.
///
/// Gradients accumulate over backwards as in one process: local ones (paused) join the next reduction; already reduced
/// ones stay and the new reduced gradient is added to them. One case has no meaning and throws: Reduction::sum, reduced
/// gradients still in place, and then a paused backward.
/// Fixed order (docs/strategies.md): every backward is a micro-batch, V = logical_shards of them make a step over all
/// ranks, and micro-batch i = k * ranks + rank is the k-th backward of a rank. Each is reduced by Group::accumulate, so
/// grad() holds (((g_0 + g_1) + g_2) + ...) whatever the number of ranks, bit for bit; a mean multiplies each g_i by
/// 1 / V first. Between backwards grad() is undefined or the sum; pausing is refused, since it would add on one rank.
///
/// A backward that gives no managed parameter a gradient is not the reducer's business. A failed one drops all
/// gradients. One backward at a time; another model's may run in another thread when the parameters are on the CPU.
class Reducer final : public BackwardListener {
 public:
  /// `parameters`: trainable leaves on group.device(), the same on every rank (require_same_structure).
  /// `after_reduction` runs at the end of every synchronised backward, on every rank.
  Reducer(comm::Group group, std::vector<NamedTensor> parameters, const ReducerOptions& options,
          std::function<void()> after_reduction);
  ~Reducer() override;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  void pause();
  void resume() { --pauses_; }
  void zero_grad();
  /// Parameter indices per bucket, in reduction order.
  std::vector<std::vector<std::size_t>> assignment() const;

  /// Name of the first parameter of this rank with a gradient that is not finite, since the last zero_grad().
  const std::string& first_not_finite() const { return first_not_finite_; }

  void backward_begin() override;
  void backward_end() override;
  void backward_failed() noexcept override;

 private:
  /// What is known of one parameter's gradient.
  struct Gradient {
    std::size_t bucket = 0, index = 0;  ///< its place: buckets_[bucket].views[index]
    bool ready = false;                 ///< produced by this backward
    bool local = false;                 ///< grad() holds something that was not reduced yet
    bool reduced = false;               ///< grad() holds a finished reduction
    bool refuses_local = false;         ///< the case without meaning, see above
    at::Tensor set_aside;               ///< during a backward with sum: the finished reduction that was in the view
    bool hidden = false;                ///< fixed order, during a backward: there is a sum, grad() is undefined
    Subscription hook;
  };

  void on_gradient(std::size_t i);
  void place(std::vector<Bucket> buckets);
  void rebuild();
  void set_reduced_aside();
  void put_reduced_back();
  void hide_sums();
  void show_sums();
  void start_ready_buckets();
  void start(Bucket& bucket);
  void finish();
  void learn_order();
  [[noreturn]] void throw_missing() const;
  at::Tensor& view(const Gradient& g) { return buckets_[g.bucket].views[g.index]; }
  bool fixed_order() const { return options_.logical_shards > 0; }
  /// Where grad() is between backwards.
  at::Tensor& result(const Gradient& g) {
    return fixed_order() ? buckets_[g.bucket].sum_views[g.index] : buckets_[g.bucket].views[g.index];
  }
  bool holds(std::size_t i, const at::Tensor& place) const;
  bool holds_view(std::size_t i) const;
  std::vector<Bucket> make(const std::vector<std::vector<std::size_t>>& assignment) const;
  void check(std::size_t i, const at::Tensor& grad) const;
  bool predivides() const { return options_.predivide_factor != 1; }

  comm::Group group_;
  std::vector<NamedTensor> parameters_;
  ReducerOptions options_;
  std::function<void()> after_reduction_;

  std::mutex mutex_;
  std::vector<Gradient> gradients_;  ///< one per parameter
  std::vector<Bucket> buckets_;
  std::size_t next_bucket_ = 0;           ///< the one to start next
  std::vector<std::size_t> ready_order_;  ///< of this backward
  bool order_known_ = false;
  std::vector<std::vector<std::size_t>> next_assignment_;  ///< to be laid out when the next backward begins
  bool touched_ = false;                                   ///< this backward produced a gradient of ours
  bool sync_ = true;                                       ///< this backward reduces
  std::thread::id begun_by_, owner_;
  std::atomic<int> pauses_ = 0;
  std::string first_not_finite_;
  Subscription listening_;
};

}  // namespace tessera::parallel
