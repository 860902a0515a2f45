#pragma once
/// \file
/// Flat gradients that stay whole on every rank (DDP): buckets. grad() of a parameter is a view of its bucket, so that
/// reducing the bucket is all there is to do.
///
/// - Autograd moves a gradient into an undefined grad(); it is copied into the bucket, and grad() made the view
/// (cheaper
///   than accumulating into zeroed views). A grad() that is the view already was accumulated in place.
/// - Gradients accumulate over backwards as in one process: local ones (paused) join the next reduction; reduced ones
///   stay and the new reduced gradient is added to them. One case has no meaning and throws: Reduction::sum, reduced
///   gradients still in place, and then a paused backward.
/// - Fixed order: between backwards grad() is undefined or the running sum, which lies beside the bucket.

#include <tessera/parallel/replicas.h>
#include <tessera/parallel/sharding/bucket.h>
#include <tessera/parallel/sharding/flat_gradient.h>

#include <memory>
#include <vector>

namespace tessera::parallel {

struct BucketOptions {
  double first_bucket_mb = 1, bucket_mb = 25;  ///< MiB
  comm::Reduction reduction = comm::Reduction::mean;
  bool fixed_order = false;
};

/// What is known of one parameter's gradient, in whichever bucket it lies.
struct WholeGradient {
  bool taken = false;          ///< by this backward
  bool local = false;          ///< grad() holds something that was not reduced yet
  bool reduced = false;        ///< grad() holds a finished reduction
  bool refuses_local = false;  ///< the case without meaning, see above
  at::Tensor set_aside;        ///< during a backward with sum: the finished reduction that was in the view
  bool hidden = false;         ///< fixed order, during a backward: there is a sum, grad() is undefined
};

/// The buckets' layout: at first the reverse of the parameters' order, later that in which gradients became ready.
class WholeGradients {
 public:
  /// `parameters`: trainable leaves on group.device(), the same on every rank. Throws InputError.
  WholeGradients(comm::Group group, std::vector<NamedTensor> parameters, const BucketOptions& options);

  std::vector<std::unique_ptr<FlatGradient>> make();
  /// The buckets shall follow this order, on every rank the same. True when that changes them.
  bool follow(const std::vector<std::size_t>& order);
  /// New buckets in place of `flats`; gradients that live there move.
  void rebuild(std::vector<std::unique_ptr<FlatGradient>>& flats);

 private:
  comm::Group group_;
  std::vector<NamedTensor> parameters_;
  BucketOptions options_;
  std::vector<WholeGradient> gradients_;              ///< one per parameter
  std::vector<std::vector<std::size_t>> assignment_;  ///< parameters per bucket
};

}  // namespace tessera::parallel
