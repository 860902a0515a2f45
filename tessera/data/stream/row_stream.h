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
  double weight = 0;  ///< in a blend; 0: there is one part
  corpus::TokenRequest request;
};

struct RowStreamOptions {
  WindowOptions window;  ///< the parts of a blend share its rows by weight
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::string settings;  ///< what rows depend on beside files and seed, for people too
};

/// Rows without end. Row i is the i-th sample of the run (so that a Sampler gives i itself): of a blend the next row of
/// the part that BlendOrder says. What a row is depends on files, settings, seed and i alone, on no process.
///
/// Rows are read in ascending order, but for those of the window (row_window.h) in which the last one stood. Any number
/// of threads. read() throws Error with what the thread that makes them has come across.
class RowStream final : public Dataset {
 public:
  /// Throws InputError for a file that is not there.
  RowStream(std::vector<StreamPart> parts, const RowStreamOptions& options);

  /// Begins at sample `first`, with the state that state_at(first) gave or, at 0, none. Before any row is read; once.
  /// Throws InputError naming what differs when the state is one of other files or settings.
  void start(std::int64_t first, const Value& state = {});
  /// Where a stream goes on that shall begin at `sample`, for a checkpoint: a few numbers, no tokens. Rows before it
  /// may not be read any more. May wait for rows to be made.
  Value state_at(std::int64_t sample) const;
  /// The first rows, about `max_tokens` tokens of them, for whom wants to look at some.
  std::shared_ptr<const Dataset> sample(std::int64_t max_tokens = std::int64_t{1} << 18) const;

  std::int64_t size() const override;  ///< without end: more than a run has steps
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
  std::string settings_, files_;  // the latter a hash
  std::optional<corpus::BlendOrder> order_;
  std::vector<std::unique_ptr<WindowQueue>> parts_;
};

/// What train_file names, as a stream. `warn` is told, from another thread, of examples that are cut or left out; may
/// be empty. Adds to `notes`. Throws InputError for files that cannot be streamed: tokens, and text beside records.
std::shared_ptr<RowStream> open_stream(const DataConfig& config, const text::Tokenizer& tokenizer,
                                       const std::string& tokenizer_place, std::int64_t block_size,
                                       std::int64_t vocab_size, std::uint64_t seed,
                                       const std::function<void(const std::string&)>& warn,
                                       std::vector<std::string>& notes);

}  // namespace tessera::data
