#include <tessera/train/inference/embed.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <numeric>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/nn/device/send.h>
#include <tessera/parallel/replicas/thread_team.h>

namespace tessera::train {
namespace {

constexpr std::size_t texts_at_once = 64;  // number of texts that a team tokenizes before it takes more

}  // namespace

/// Runs teams that take numbered pieces of work until none are left, so a slow piece delays only one team.
struct Embedder::Teams {
  std::vector<std::unique_ptr<parallel::ThreadTeam>> all;

  void share_out(std::size_t pieces, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next = 0;
    const auto take = [&] {
      for (std::size_t i = next++; i < pieces; i = next++) work(i);
    };
    std::vector<std::future<void>> running;
    for (const auto& team : all) running.push_back(team->start(take));
    std::exception_ptr failed;
    for (std::future<void>& one : running) {
      try {
        one.get();
      } catch (...) {
        next = pieces;  // makes the others stop after their current piece
        failed = std::current_exception();
      }
    }
    if (failed) std::rethrow_exception(failed);
  }
};

Embedder::Embedder(std::shared_ptr<models::SentenceEncoder> encoder, std::shared_ptr<const text::Tokenizer> tokenizer,
                   EmbedOptions options)
    : encoder_(std::move(encoder)),
      tokenizer_(std::dynamic_pointer_cast<const text::WordPieceTokenizer>(tokenizer)),
      options_(options),
      teams_(std::make_unique<Teams>()) {
  if (!tokenizer_) throw InputError("BERT needs a WordPiece tokenizer, but this folder has one of a different kind");
  if (tokenizer_->vocab_size() > encoder_->vocab_size())
    throw InputError(concat("the tokenizer has ", tokenizer_->vocab_size(), " tokens but the model's embedding has ",
                            encoder_->vocab_size(), " rows: they do not belong together"));
  if (options_.batch_size < 1)
    throw InputError(concat("--batch_size is ", options_.batch_size, "; it must be at least 1"));
  if (options_.replicas < 1) throw InputError(concat("--replicas is ", options_.replicas, "; it must be at least 1"));
  const int threads = options_.threads_per_replica > 0 ? options_.threads_per_replica
                                                       : std::max(1, at::get_num_threads() / options_.replicas);
  for (int i = 0; i < options_.replicas; ++i)
    teams_->all.push_back(std::make_unique<parallel::ThreadTeam>(concat("embed ", i), threads));
}

Embedder::~Embedder() = default;

int Embedder::threads_per_replica() const { return teams_->all.front()->threads(); }

at::Tensor Embedder::embed(std::span<const std::string_view> texts, const std::function<void(std::int64_t)>& done) {
  const std::int64_t most = encoder_->options().max_length;
  const auto most_ids = static_cast<std::size_t>(most);
  std::vector<std::vector<std::int32_t>> ids(texts.size());
  std::atomic<std::int64_t> cut = 0;
  teams_->share_out((texts.size() + texts_at_once - 1) / texts_at_once, [&](std::size_t piece) {
    for (std::size_t i = piece * texts_at_once; i < std::min(texts.size(), (piece + 1) * texts_at_once); ++i) {
      ids[i] = tokenizer_->encode_text(texts[i]).ids;
      if (ids[i].size() <= most_ids) continue;
      ++cut;
      const std::vector<std::int32_t> end = tokenizer_->suffix();  // keeps the special tokens
      ids[i].resize(most_ids);
      std::copy_backward(end.begin(), end.begin() + static_cast<std::ptrdiff_t>(std::min(end.size(), most_ids)),
                         ids[i].end());
    }
  });

  // longest first: running out of memory shows immediately, and the last pieces are short
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ids[a].size() > ids[b].size(); });

  at::Tensor out = at::empty({static_cast<std::int64_t>(texts.size()), encoder_->width()}, at::kFloat);
  const auto width = static_cast<std::size_t>(encoder_->width());
  auto* const rows = out.mutable_data_ptr<float>();
  const auto batch_size = static_cast<std::size_t>(options_.batch_size);
  std::atomic<std::int64_t> padded = 0;
  std::mutex telling;
  std::int64_t finished = 0;
  const at::NoGradGuard no_grad;
  const c10::Device device = encoder_->parameters().front().device();
  teams_->share_out((texts.size() + batch_size - 1) / batch_size, [&](std::size_t piece) {
    const auto batch =
        std::span(order).subspan(piece * batch_size, std::min(batch_size, texts.size() - piece * batch_size));
    const auto count = static_cast<std::int64_t>(batch.size());
    const auto length = static_cast<std::int64_t>(ids[batch.front()].size());
    const at::Tensor input = at::full({count, length}, encoder_->pad_token_id(), at::kLong);  // [B, T]
    auto* const numbers = input.mutable_data_ptr<std::int64_t>();
    std::vector<std::int64_t> lengths;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      std::copy(ids[batch[i]].begin(), ids[batch[i]].end(), numbers + static_cast<std::int64_t>(i) * length);
      lengths.push_back(static_cast<std::int64_t>(ids[batch[i]].size()));
    }
    const at::Tensor vectors = encoder_->forward(nn::send(input, device), lengths).to(at::kCPU).contiguous();  // [B, C]
    for (std::size_t i = 0; i < batch.size(); ++i)
      std::copy_n(vectors.const_data_ptr<float>() + i * width, width, rows + batch[i] * width);
    padded += count * length;
    const std::lock_guard lock(telling);
    finished += count;
    if (done) done(finished);
  });

  counts_.texts += static_cast<std::int64_t>(texts.size());
  for (const auto& one : ids) counts_.tokens += static_cast<std::int64_t>(one.size());
  counts_.padded_tokens += padded;
  counts_.cut += cut;
  return out;
}

}  // namespace tessera::train
