#pragma once
/// \file
/// The gradient reducer behind Ddp: buckets fill while backward runs and are reduced at once, in one order on every
/// rank.

#include <tessera/comm/group.h>
#include <tessera/parallel/autograd_engine.h>
#include <tessera/parallel/bucket.h>
#include <tessera/parallel/replicas.h>

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

  void pause() { ++pauses_; }
  void resume() { --pauses_; }
  void zero_grad();
  /// Parameter indices per bucket, in reduction order.
  std::vector<std::vector<std::size_t>> assignment() const;

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
    Subscription hook;
  };

  void on_gradient(std::size_t i);
  void place(std::vector<Bucket> buckets);
  void rebuild();
  void set_reduced_aside();
  void put_reduced_back();
  void start_ready_buckets();
  void start(Bucket& bucket);
  void finish();
  void learn_order();
  [[noreturn]] void throw_missing() const;
  at::Tensor& view(const Gradient& g) { return buckets_[g.bucket].views[g.index]; }
  bool holds_view(std::size_t i) const;
  void check_gradient(std::size_t i, const at::Tensor& grad) const;

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
  Subscription listening_;
};

}  // namespace tessera::parallel
