#include <tessera/data/stream/row_stream.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/corpus/cache/content_hash.h>
#include <tessera/corpus/cache/source_state.h>
#include <tessera/corpus/permutation.h>

namespace tessera::data {
namespace {

/// Rows that have been read already, kept in memory.
class ReadRows final : public Dataset {
 public:
  ReadRows(std::vector<Row> rows, std::int64_t max_length) : rows_(std::move(rows)), max_length_(max_length) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t max_length() const override { return max_length_; }
  std::int64_t length(std::int64_t row) const override { return static_cast<std::int64_t>(at(row).ids.size()); }
  Row read(std::int64_t row) const override { return at(row); }

 private:
  const Row& at(std::int64_t row) const {
    TESSERA_CHECK(row >= 0 && row < size(), "row ", row, " of ", size());
    return rows_[static_cast<std::size_t>(row)];
  }

  std::vector<Row> rows_;
  std::int64_t max_length_;
};

std::optional<corpus::BlendOrder> order_of(const std::vector<StreamPart>& parts) {
  if (parts.front().weight == 0) return std::nullopt;
  std::vector<double> weights;
  for (const StreamPart& part : parts) weights.push_back(part.weight);
  return corpus::BlendOrder(weights);
}

}  // namespace

RowStream::RowStream(std::vector<StreamPart> parts, const RowStreamOptions& options)
    : max_length_(0), order_(order_of(parts)) {
  TESSERA_CHECK(!parts.empty() && (parts.size() == 1 || order_), parts.size(), " parts");
  settings_ = concat(options.settings, "; windows of ", options.window.rows, " rows, ",
                     options.shuffle ? concat("shuffled by seed ", options.seed) : "in the order of the files");
  std::string files;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    StreamPart& part = parts[p];
    max_length_ =
        std::max(max_length_, part.request.examples ? options.window.example_length : options.window.block_length);
    files += concat("part ", p, " ", part.weight, " ", part.request.settings, "\n");
    for (const corpus::SourceFile& source : part.request.sources) files += corpus::glance_at(source) + "\n";
    WindowOptions window = options.window;
    if (order_)
      window.rows = std::max<std::int64_t>(
          1, std::llround(static_cast<double>(window.rows) * order_->share(static_cast<std::int64_t>(p))));
    if (options.shuffle) window.shuffle_key = corpus::mix(options.seed) + corpus::mix(p);
    parts_.push_back(std::make_unique<WindowQueue>(std::make_unique<WindowMaker>(std::move(part.request), window)));
  }
  files_ = corpus::hash_of(std::string_view(files)).hex();
}

void RowStream::check_state(const Value& state) const {
  const auto differs = [&](const char* what, const std::string& was, const std::string& is) {
    throw InputError(concat("--resume_from_checkpoint: the checkpoint was made from a stream with different ", what,
                            " (", was, "; current: ", is,
                            "), so its position in the data does not apply: resume with the same "
                            "stream, or start a new run from its weights (--model_name_or_path)"));
  };
  if (state.at("settings").as_string() != settings_) differs("settings", state.at("settings").as_string(), settings_);
  if (state.at("files").as_string() != files_)
    differs("files, columns or tokenizer", state.at("files").as_string(), files_);
  if (state.at("parts").items().size() != parts_.size())
    throw InputError(
        concat(state.where().str(), ": has ", state.at("parts").items().size(), " parts, not ", parts_.size()));
}

void RowStream::start(std::int64_t first, const Value& state) {
  first_ = first;
  if (state.is_null()) {
    TESSERA_CHECK(first == 0, "a stream that begins at sample ", first, " without a state");
    for (const auto& part : parts_) part->start({});
    return;
  }
  check_state(state);
  if (state.at("samples").as_int() != first)
    throw InputError(
        concat(state.where().str(), ": is the state at sample ", state.at("samples").as_int(), ", not ", first));
  const auto& places = state.at("parts").items();
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const WindowQueue::Mark mark{places[p].at("first_row").as_int(), window_place_from_json(places[p])};
    if (mark.first < 0 || mark.first > samples_of(p, first))
      throw InputError(concat(places[p].where().str(), ": the window begins at row ", mark.first, ", after row ",
                              samples_of(p, first), " where the run resumes"));
    parts_[p]->start(mark);
  }
}

/// Returns how many of the first `samples` samples come from a part.
std::int64_t RowStream::samples_of(std::size_t part, std::int64_t samples) const {
  return order_ ? order_->count(static_cast<std::int64_t>(part), samples) : samples;
}

Value RowStream::state_at(std::int64_t sample) const {
  std::vector<Value> places;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const WindowQueue::Mark mark = parts_[p]->mark_of(samples_of(p, sample));
    Value place = to_json(mark.place);
    place.set("first_row", Value::of(mark.first));
    places.push_back(std::move(place));
  }
  return Value::make_object({{"samples", Value::of(sample)},
                             {"settings", Value::of(settings_)},
                             {"files", Value::of(files_)},
                             {"parts", Value::make_array(std::move(places))}});
}

RowStream::Place RowStream::place_of(std::int64_t row) const {
  TESSERA_CHECK(row >= 0, "row ", row);
  if (!order_) return {parts_.front().get(), row};
  const corpus::BlendOrder::Sample sample = (*order_)(row);
  return {parts_[static_cast<std::size_t>(sample.part)].get(), sample.number};
}

std::int64_t RowStream::size() const { return std::int64_t{1} << 60; }

std::int64_t RowStream::length(std::int64_t row) const {
  const Place place = place_of(row);
  const WindowQueue::Found found = place.part->find(place.number);
  return found.window->length(place.number - found.first);
}

Row RowStream::read(std::int64_t row) const {
  const Place place = place_of(row);
  const WindowQueue::Found found = place.part->find(place.number);
  return found.window->read(place.number - found.first);
}

std::shared_ptr<const Dataset> RowStream::sample(std::int64_t max_tokens) const {
  std::vector<std::int64_t> left;  // rows left in each part's first window
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const std::int64_t at = samples_of(p, first_);
    const WindowQueue::Found found = parts_[p]->find(at);
    left.push_back(found.first + found.window->rows() - at);
  }
  std::vector<Row> rows;
  for (std::int64_t i = first_, tokens = 0; rows.empty() || tokens < max_tokens; ++i) {
    const auto part = order_ ? static_cast<std::size_t>((*order_)(i).part) : 0;
    if (left[part]-- == 0) break;
    rows.push_back(read(i));
    tokens += static_cast<std::int64_t>(rows.back().ids.size());
  }
  return std::make_shared<ReadRows>(std::move(rows), max_length_);
}

}  // namespace tessera::data
