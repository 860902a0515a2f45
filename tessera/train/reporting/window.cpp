#include <tessera/train/reporting/window.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>

namespace tessera::train {

StepCounts count(const std::vector<data::Batch>& batches) {
  StepCounts counts;
  for (const data::Batch& batch : batches) {
    counts.scored_tokens += batch.scored_tokens;
    counts.tokens += batch.tokens;
    counts.labels_not_ignored += batch.labels_not_ignored;
    counts.inputs += batch.counts ? batch.ids.numel() : 0;
  }
  return counts;
}

double finite_or_mean(double loss, double sum, std::size_t count) {
  return std::isfinite(loss) ? loss : count == 0 ? 0 : sum / static_cast<double>(count);
}

void Window::begin_step(const StepCounts& all_ranks) { counts_ = all_ranks; }

void Window::add_loss(double cross_entropy) { add_loss(cross_entropy, counts_.labels_not_ignored); }

void Window::add_loss(double cross_entropy, std::int64_t labels_not_ignored) {
  double loss = hf_loss_scale_ ? cross_entropy / static_cast<double>(labels_not_ignored) : cross_entropy;
  if (nan_filter_ && !std::isfinite(loss))
    loss = finite_or_mean(loss, std::accumulate(losses_.begin(), losses_.end(), 0.0), losses_.size());
  losses_.push_back(loss);
}

void Window::add_loss(nn::LateNumber loss, std::function<double(double)> cross_entropy_of) {
  late_losses_.push_back({std::move(loss), std::move(cross_entropy_of), counts_.labels_not_ignored});
}

void Window::read_losses(bool wait) {
  for (; !late_losses_.empty() && (wait || late_losses_.front().loss.ready()); late_losses_.pop_front()) {
    const LateLoss& late = late_losses_.front();
    add_loss(late.cross_entropy_of(late.loss.value()), late.labels_not_ignored);
  }
}

void Window::end_step(double seconds, double cpu_seconds) {
  read_losses(/*wait=*/false);
  ++steps_;
  scored_ += counts_.scored_tokens;
  tokens_ += counts_.tokens;
  seconds_ += seconds;
  cpu_seconds_ += cpu_seconds;
}

double Window::rough_loss(int ranks) const {
  const double sum = std::accumulate(losses_.begin(), losses_.end(), 0.0), read = static_cast<double>(losses_.size());
  // Assumes that the unread losses are similar to those already read.
  const double share = late_losses_.empty() ? 1 : read / (read + static_cast<double>(late_losses_.size()));
  return ranks * sum / (share * static_cast<double>(hf_loss_scale_ ? steps_ : scored_));
}

StepMetrics Window::close(const comm::Group& group, const PhaseSeconds& phases, const MemoryByKind& memory,
                          std::int64_t threads, int place, const std::vector<double>& sums) {
  TESSERA_CHECK(steps_ > 0, "a log without a step");
  read_losses(/*wait=*/true);
  const comm::Tag tag("log");
  std::vector<double> mine = {static_cast<double>(place), cpu_seconds_};
  mine.insert(mine.end(), phases.begin(), phases.end());
  mine.insert(mine.end(), memory.begin(), memory.end());
  mine.insert(mine.end(), sums.begin(), sums.end());
  const std::size_t losses_begin = mine.size();
  mine.insert(mine.end(), losses_.begin(), losses_.end());
  const auto fields = static_cast<std::int64_t>(mine.size());
  const auto options = at::TensorOptions().dtype(at::kDouble);
  at::Tensor all = at::tensor(mine, options);  // [ranks x fields]
  if (group.size() > 1) {
    const comm::Group host = group.host();
    const at::Tensor own = all.to(host.device());
    all = at::empty({group.size() * fields}, own.options());
    host.all_gather(all, own).wait();
    all = all.cpu();
  }

  StepMetrics metrics;
  const auto steps = static_cast<double>(steps_);
  std::vector<std::pair<int, int>> by_place;  // ranks
  for (int rank = 0; rank < group.size(); ++rank) {
    const double* field = all.data_ptr<double>() + rank * fields;
    by_place.emplace_back(static_cast<int>(*field++), rank);
    metrics.cpu_seconds += *field++ / steps;
    double all_seconds = 0;
    for (std::size_t i = 0; i < phase_count; ++i) {
      metrics.phases[i] += field[i] / steps / group.size();
      all_seconds += field[i];
    }
    const double blocked = field[static_cast<std::size_t>(Phase::communication)];
    metrics.idle_by_rank.push_back(all_seconds > 0 ? blocked / all_seconds : 0);
    field += phase_count;
    MemoryByKind kinds;
    std::int64_t peak = 0;
    for (std::int64_t& bytes : kinds) peak += bytes = static_cast<std::int64_t>(*field++);
    metrics.memory_kinds.push_back(kinds);
    metrics.memory_by_rank.push_back(peak);
    metrics.sums.resize(sums.size());
    for (double& sum : metrics.sums) sum += *field++;
  }
  std::sort(by_place.begin(), by_place.end());
  double loss_sum = 0;
  for (auto i = static_cast<std::int64_t>(losses_begin); i < fields; ++i)
    for (const auto& [its_place, rank] : by_place) loss_sum += all.const_data_ptr<double>()[rank * fields + i];
  metrics.loss = loss_sum / (hf_loss_scale_ ? steps : static_cast<double>(scored_));
  metrics.tokens_per_second = static_cast<double>(tokens_) / seconds_;
  metrics.step_time_ms = 1000 * seconds_ / steps;
  metrics.cpu_utilization =
      metrics.cpu_seconds * steps / (seconds_ * static_cast<double>(group.size()) * static_cast<double>(threads));
  metrics.wall_time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  *this = Window(hf_loss_scale_, nan_filter_);
  return metrics;
}

}  // namespace tessera::train
