#include <tessera/train/features/streaming.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/stream/row_stream.h>
#include <tessera/train/features/run_feature.h>

namespace tessera::train {
namespace {

class StreamingFeature : public RunFeature {
 public:
  /// Starts where the checkpoint ends.
  void begin_run(RunBegin& begin) override {
    stream_ = begin.datasets.stream;
    const checkpoint::RunState* const resumed = begin.resumed;
    const bool was_streamed = resumed != nullptr && !resumed->stream.is_null();
    if (resumed != nullptr && resumed->samples > 0 && was_streamed != (stream_ != nullptr))
      throw InputError(concat("--resume_from_checkpoint ", begin.folder, ": the checkpoint was made with",
                              was_streamed ? "" : "out", " --streaming, which has a different row order: ",
                              was_streamed ? "add it" : "remove it", " as in the first run"));
    if (!stream_) return;
    if (was_streamed)
      stream_->start(resumed->samples, resumed->stream);
    else
      stream_->start(0);
    begin.first_rows = stream_->sample();
  }
  void save(checkpoint::RunState& state) const override {
    if (stream_) state.stream = stream_->state_at(state.samples);
  }

 private:
  std::shared_ptr<data::RowStream> stream_;  // null: rows are read by index
};

}  // namespace

std::unique_ptr<RunFeature> make_streaming(const RunConfig&) { return std::make_unique<StreamingFeature>(); }

}  // namespace tessera::train
