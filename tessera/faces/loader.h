#pragma once
/// \file
/// Batches of the user's own data, in the same order on every rank, with each rank's share of them.
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

/// Rows that can be accessed by number: a map-style dataset.
struct RowSource {
  std::int64_t rows = 0;  ///< number of rows
  /// Returns the tensors of a batch, rows along dimension 0 in the requested order; numbers in [0, rows).
  std::function<std::vector<at::Tensor>(const std::vector<std::int64_t>& rows)> read;
};
/// Tensors in memory, [rows, ...] each. Throws InputError if their row counts differ.
RowSource tensor_rows(std::vector<at::Tensor> tensors);

/// The arguments of torch.utils.data.DataLoader, by their names there.
struct LoaderOptions {
  std::int64_t batch_size = 8;  ///< rows of one rank; with split_batches of all ranks together
  bool shuffle = false;         ///< new permutation each epoch, keyed by (seed, epoch): the same on every rank
  std::uint64_t seed = 42;      ///< for the permutations of `shuffle`
  bool drop_last = false;       ///< drops rows at the end that do not fill a batch on every rank
};

namespace faces {
/// State of a loader during a pass; these defaults otherwise.
struct LoaderState {
  bool end_of_loader = false;  ///< the current batch is the last of the pass
  std::int64_t remainder = 0;  ///< rows of the last round that are not repeats; 0: the round is full
  std::int64_t epoch = 0;      ///< number of the current or next pass
  std::int64_t batches = 0;    ///< batches taken in this pass
  std::int64_t common = 0;     ///< batches of this pass that every rank has
  bool stand_in = false;       ///< this rank's rows are used up; the batch only keeps it in step with the others
};

/// Shared by the loaders of one Accelerator.
struct LoaderGroup {
  std::weak_ptr<const LoaderState> last;  ///< the state of the loader that was read last
  // join_uneven_inputs, for passes that start:
  std::optional<bool> even_batches = {};  ///< replaces the plan's setting
  bool join = false;  ///< a rank without a batch gets a substitute: every rank takes part in all rounds
};
}  // namespace faces

/// One pass per begin(). A cheap handle: copies share the position (epoch). Not thread-safe.
class DataLoader {
 public:
  /// Throws InputError for invalid numbers.
  DataLoader(RowSource source, LoaderOptions options);
  /// A loader of one rank's share (created by Accelerator::prepare).
  DataLoader(RowSource source, LoaderOptions options, faces::BatchPlan plan, std::int64_t rank, c10::Device device,
             std::shared_ptr<faces::LoaderGroup> group = {});

  std::int64_t size() const { return batches(plan()) - skip_; }  ///< batches of a pass on this rank
  std::int64_t rows() const { return source_.rows; }             ///< rows of the data, over all ranks
  /// Sets the epoch of the next pass.
  void set_epoch(std::int64_t epoch) { state_->epoch = epoch; }
  const faces::LoaderState& state() const { return *state_; }  ///< state in the current or next pass
  /// Returns this loader without the first `batches` of its next pass, whose rows are not read. Later passes are
  /// complete.
  DataLoader skip_first_batches(std::int64_t batches) const;

  /// Releases the data, leaving an empty loader (Accelerator::free_memory).
  void release();

  /// Iterates once over the batches of an epoch: an input iterator.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::vector<at::Tensor>;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type*;
    using reference = const value_type&;

    Iterator() = default;
    reference operator*() const { return batch_; }  ///< the tensors of this rank's batch, on its device
    pointer operator->() const { return &batch_; }  ///< same
    Iterator& operator++();                         ///< reads the next batch; throws the errors of RowSource::read
    void operator++(int) { ++*this; }               ///< same, without returning a copy
    /// True if both are at the end, or both iterate over the same loader.
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
  /// Starts a pass; the loader must outlive it.
  Iterator begin() { return Iterator(this); }
  Iterator end() { return {}; }  ///< the end of a pass

  const RowSource& source() const { return source_; }        ///< the data as given, before division over ranks
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
