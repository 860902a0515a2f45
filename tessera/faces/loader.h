#pragma once
/// \file
/// Batches of the user's own data, in the same order on every rank, each rank its share of them.
///
///   tessera::DataLoader loader(tessera::tensor_rows({images, labels}), {.batch_size = 32, .shuffle = true});
///   for (const auto& batch : loader) loss(net->forward(batch[0]), batch[1]);

#include <ATen/core/Tensor.h>

#include <tessera/faces/batch_plan.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

namespace tessera {

/// Rows that can be asked for by number: a map-style data set.
struct RowSource {
  std::int64_t rows = 0;  ///< how many there are
  /// Tensors of a batch, the rows along dimension 0, in the order asked for; numbers in [0, rows).
  std::function<std::vector<at::Tensor>(const std::vector<std::int64_t>& rows)> read;
};
/// Tensors in memory, [rows, ...] each. Throws InputError when their rows differ.
RowSource tensor_rows(std::vector<at::Tensor> tensors);

/// The arguments of torch.utils.data.DataLoader, by their names there.
struct LoaderOptions {
  std::int64_t batch_size = 8;  ///< rows of one rank; with split_batches of all ranks together
  bool shuffle = false;         ///< another permutation each epoch, keyed by (seed, epoch): the same on every rank
  std::uint64_t seed = 42;      ///< what permutations of `shuffle` depend on
  bool drop_last = false;       ///< leaves out the rows at the end that do not fill a batch on every rank
};

namespace faces {
/// What a loader tells of itself while it runs; of none: its values here.
struct LoaderState {
  bool end_of_loader = false;  ///< the batch in use is the last of the pass
  std::int64_t remainder = 0;  ///< rows of that last round which are not repeated ones; 0: all
  std::int64_t epoch = 0;      ///< the number of the pass that runs, or comes next
  std::int64_t batches = 0;    ///< taken in this pass
  std::int64_t common = 0;     ///< batches of this pass that every rank has
  bool stand_in = false;       ///< this rank's rows are used up; the batch only lets it go along with the others
};

/// What the loaders of one Accelerator share.
struct LoaderGroup {
  std::weak_ptr<const LoaderState> last;  ///< the state of the loader that was read last
  // join_uneven_inputs, of passes that begin:
  std::optional<bool> even_batches = {};  ///< instead of the plan's
  bool join = false;  ///< a rank without a batch gets a stand-in: every rank takes part in all rounds
};
}  // namespace faces

/// One pass per begin(). A cheap handle: copies share the position (epoch). Not thread-safe.
class DataLoader {
 public:
  /// Throws InputError for numbers that make no sense.
  DataLoader(RowSource source, LoaderOptions options);
  /// The share of one rank (Accelerator::prepare makes it).
  DataLoader(RowSource source, LoaderOptions options, faces::BatchPlan plan, std::int64_t rank, c10::Device device,
             std::shared_ptr<faces::LoaderGroup> group = {});

  std::int64_t size() const { return batches(plan()) - skip_; }  ///< batches of a pass, on this rank
  std::int64_t rows() const { return source_.rows; }             ///< rows of the data, over all ranks
  /// The order of the next pass.
  void set_epoch(std::int64_t epoch) { state_->epoch = epoch; }
  const faces::LoaderState& state() const { return *state_; }  ///< the pass that runs, or comes next
  /// This loader without the first `batches` of its next pass, whose rows are not read. Passes after it are whole.
  DataLoader skip_first_batches(std::int64_t batches) const;

  /// Lets go of the data: an empty loader (Accelerator::free_memory).
  void release();

  /// Goes once through the batches of an epoch: an input iterator.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::vector<at::Tensor>;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type*;
    using reference = const value_type&;

    Iterator() = default;
    reference operator*() const { return batch_; }  ///< the tensors of this rank's batch, on its device
    pointer operator->() const { return &batch_; }  ///< the same
    Iterator& operator++();                         ///< reads the next batch; throws what RowSource::read throws
    void operator++(int) { ++*this; }               ///< the same, and gives no copy back
    /// Both are at the end, or both go through one loader.
    bool operator==(const Iterator& other) const { return loader_ == other.loader_; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader* loader);
    void read();

    DataLoader* loader_ = nullptr;  // nullptr: the end
    faces::BatchPlan plan_;
    std::int64_t epoch_ = 0, next_ = 0, count_ = 0;
    std::vector<at::Tensor> batch_;
  };
  /// Begins a pass; the loader must outlive it.
  Iterator begin() { return Iterator(this); }
  Iterator end() { return {}; }  ///< equals the iterator whose pass is over

  const RowSource& source() const { return source_; }        ///< the data as given, before they are divided over ranks
  const LoaderOptions& options() const { return options_; }  ///< as given to the constructor

 private:
  faces::BatchPlan plan() const;  // for a pass that begins now
  std::int64_t batches(const faces::BatchPlan& plan) const;
  std::vector<std::int64_t> rows_of(std::int64_t epoch, std::vector<std::int64_t> positions) const;

  RowSource source_;
  LoaderOptions options_;
  faces::BatchPlan plan_;
  std::int64_t rank_ = 0, skip_ = 0;
  c10::Device device_;
  std::shared_ptr<faces::LoaderState> state_;
  std::shared_ptr<faces::LoaderGroup> group_;
};

}  // namespace tessera
