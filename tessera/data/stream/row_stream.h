#pragma once
/// \file
/// The training data of a run with --streaming, as a dataset.

#include <tessera/corpus/blend_order.h>
#include <tessera/data/stream/window_queue.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tessera::data {

struct StreamPart {
  double weight = 0;  ///< weight in a blend; 0: the only part
  corpus::TokenRequest request;
};

struct RowStreamOptions {
  WindowOptions window;  ///< the parts of a blend share its rows by weight
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::string settings;  ///< settings besides files and seed on which rows depend; also shown to users
};

/// An endless dataset. Row i is the i-th sample of the run (so a Sampler maps i to itself); in a blend it is the next
/// row of the part that BlendOrder selects. A row depends only on files, settings, seed and i, not on the process.
///
/// Rows must be read in ascending order, except that rows of the current window (row_window.h) may be read in any
/// order. Any number of threads may read. read() throws Error for failures of the producer thread.
class RowStream final : public Dataset {
 public:
  /// Throws InputError for a missing file.
  RowStream(std::vector<StreamPart> parts, const RowStreamOptions& options);

  /// Starts at sample `first`, with the state returned by state_at(first), or at sample 0 without a state. Call once,
  /// before any row is read. Throws InputError naming the difference when the state was made from different files or
  /// settings.
  void start(std::int64_t first, const Value& state = {});
  /// The state for a checkpoint from which a stream can resume at `sample`: a few numbers, no tokens. Rows before
  /// `sample` must not be read after this. May wait for rows to be made.
  Value state_at(std::int64_t sample) const;
  /// Returns the first rows, about `max_tokens` tokens, for inspection.
  std::shared_ptr<const Dataset> sample(std::int64_t max_tokens = std::int64_t{1} << 18) const;

  std::int64_t size() const override;  ///< a stream is endless: a number larger than any run can use
  std::int64_t max_length() const override { return max_length_; }
  std::int64_t length(std::int64_t row) const override;
  Row read(std::int64_t row) const override;
  bool streamed() const override { return true; }

 private:
  struct Place {
    WindowQueue* part;
    std::int64_t number;
  };
  Place place_of(std::int64_t row) const;
  std::int64_t samples_of(std::size_t part, std::int64_t samples) const;
  void check_state(const Value& state) const;

  std::int64_t max_length_;
  std::int64_t first_ = 0;
  std::string settings_, files_;  // `files_` is a hash
  std::optional<corpus::BlendOrder> order_;
  std::vector<std::unique_ptr<WindowQueue>> parts_;
};

/// Opens train_file as a stream. `warn` (may be empty) is called from another thread for examples that are truncated or
/// left out. Adds to `notes`. Throws InputError for files that cannot be streamed: tokens, and a mixture of text and
/// records.
std::shared_ptr<RowStream> open_stream(const DataConfig& config, const text::Tokenizer& tokenizer,
                                       const std::string& tokenizer_place, std::int64_t block_size,
                                       std::int64_t vocab_size, std::uint64_t seed,
                                       const std::function<void(const std::string&)>& warn,
                                       std::vector<std::string>& notes);

}  // namespace tessera::data
