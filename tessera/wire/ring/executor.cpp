#include <tessera/base/error.h>
#include <tessera/base/half.h>
#include <tessera/wire/ring/executor.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tessera::wire::ring {
namespace {

using kernels::Fold;
using kernels::Number;

// Elements [begin, end) of the whole tensor.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Start of part i when n elements are split into `parts`; a multiple of 16 elements, so that no two ranks' parts share
// a vector.
std::int64_t cut(std::int64_t n, std::int64_t parts, std::int64_t i) {
  return i == parts ? n : std::min(n, (n / parts * i + n % parts * i / parts + 15) / 16 * 16);
}

template <std::uint16_t (*Narrow)(float)>
void narrow(void* to, const float* from, std::int64_t n) {
  auto* halves = static_cast<std::uint16_t*>(to);
  for (std::int64_t i = 0; i < n; ++i) halves[i] = Narrow(from[i]);
}

class Run {
 public:
  Run(const Job& job, Link& link, Scratch& scratch)
      : job_(job),
        link_(link),
        steps_(make_schedule(job.algorithm, job.collective, job.rank, job.size)),
        wide_(job.number == Number::bf16 || job.number == Number::fp16),
        width_(kernels::size_of(job.number)),
        work_width_(wide_ ? 4 : width_),
        segments_(count_segments()) {
    TESSERA_CHECK(job.window >= 1 && job.chunk_bytes >= 1, "a job needs a window and chunks");
    TESSERA_CHECK(job.collective != Collective::all_reduce || job.input == job.output, "all_reduce works in place");
    place_work(scratch);
    place_staging(scratch);
    messages_ = static_cast<std::int64_t>(steps_.size()) * segments_;
    sends_.resize(static_cast<std::size_t>(messages_));
    recvs_.resize(static_cast<std::size_t>(messages_));
    find_hazards();
  }

  void run() {
    if (job_.collective == Collective::all_gather) {
      std::byte* own = result({job_.rank * job_.n, (job_.rank + 1) * job_.n});
      if (own != job_.input) std::memmove(own, job_.input, static_cast<std::size_t>(job_.n * width_));
    }
    try {
      loop();
    } catch (...) {
      drain();
      throw;
    }
  }

 private:
  const Step& step(std::int64_t message) const { return steps_[static_cast<std::size_t>(message / segments_)]; }

  std::int64_t count_segments() const {
    std::int64_t message = 1;  // bytes of the largest unsegmented message
    if (job_.collective == Collective::all_reduce) {
      const bool whole = job_.algorithm == Algorithm::doubling;
      const bool half = job_.algorithm == Algorithm::halving_doubling;
      message = job_.n * width_ / (whole ? 1 : half ? 2 : job_.size);
    } else {
      // The blocks are fixed: a segment of several blocks would not be contiguous.
      if (job_.algorithm == Algorithm::halving_doubling) return 1;
      message = job_.n * width_;
    }
    return std::max<std::int64_t>(1, (message + job_.chunk_bytes - 1) / job_.chunk_bytes);
  }

  Range range(std::int64_t message, Blocks blocks) const {
    const std::int64_t s = message % segments_;
    if (job_.collective == Collective::all_reduce) {
      const std::int64_t begin = cut(job_.n, segments_, s), length = cut(job_.n, segments_, s + 1) - begin;
      return {begin + cut(length, job_.size, blocks.begin), begin + cut(length, job_.size, blocks.end)};
    }
    if (segments_ == 1) return {blocks.begin * job_.n, blocks.end * job_.n};
    return {blocks.begin * job_.n + cut(job_.n, segments_, s), blocks.begin * job_.n + cut(job_.n, segments_, s + 1)};
  }
  Range sent(std::int64_t message) const { return range(message, step(message).send); }
  Range received(std::int64_t message) const { return range(message, step(message).recv); }

  std::int64_t bytes(Range range, Content content) const {
    return range.size() * (content == Content::partial ? work_width_ : width_);
  }

  // Addresses of a range in the input, the work buffer and the output.
  const std::byte* input(Range range) const { return static_cast<const std::byte*>(job_.input) + range.begin * width_; }
  std::byte* work(Range range) const { return work_ + (range.begin - work_begin_) * work_width_; }
  std::byte* result(Range range) const {
    const std::int64_t first = job_.collective == Collective::reduce_scatter ? job_.rank * job_.n : 0;
    return static_cast<std::byte*>(job_.output) + (range.begin - first) * width_;
  }
  // Returns the subrange that belongs to this rank's output.
  Range wanted(Range range) const {
    if (job_.collective != Collective::reduce_scatter) return range;
    const std::int64_t begin = job_.rank * job_.n, end = begin + job_.n;
    return {std::clamp(range.begin, begin, end), std::clamp(range.end, begin, end)};
  }

  // Combined values are kept in the output if they fit there, else in scratch.
  void place_work(Scratch& scratch) {
    if (job_.collective == Collective::all_gather) return;
    Blocks hull{job_.size, 0};
    for (const Step& s : steps_) {
      if (s.reduce) hull = {std::min(hull.begin, s.recv.begin), std::max(hull.end, s.recv.end)};
    }
    if (hull.empty()) return;
    const bool all = job_.collective == Collective::all_reduce;
    work_begin_ = all ? 0 : hull.begin * job_.n;
    if (!wide_ && (all || hull == Blocks{job_.rank, job_.rank + 1})) {
      work_ = static_cast<std::byte*>(job_.output);
    } else {
      const std::int64_t elements = all ? job_.n : (hull.end - hull.begin) * job_.n;
      work_ = scratch.work(static_cast<std::size_t>(elements * work_width_));
    }
  }

  void place_staging(Scratch& scratch) {
    for (std::int64_t m = 0; m < static_cast<std::int64_t>(steps_.size()) * segments_; ++m) {
      if (is_staged(m)) slot_bytes_ = std::max(slot_bytes_, bytes(received(m), step(m).receives));
    }
    slot_bytes_ = (slot_bytes_ + 63) / 64 * 64;
    staging_ = scratch.staging(static_cast<std::size_t>(slot_bytes_ * job_.window));
  }
  bool is_staged(std::int64_t message) const {
    const Step& s = step(message);
    return s.from >= 0 && (s.reduce || s.receives == Content::partial);
  }
  std::byte* slot(std::int64_t message) const { return staging_ + message % job_.window * slot_bytes_; }

  // For each step, finds the last step up to it whose send may still read memory that the step's receive overwrites;
  // -1: none.
  void find_hazards() {
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      int latest = -1;
      if (steps_[k].from >= 0) {
        for (std::size_t e = 0; e < k + (steps_[k].reduce ? 1 : 0); ++e) {
          if (steps_[e].to >= 0 && steps_[e].send.overlaps(steps_[k].recv)) latest = static_cast<int>(e);
        }
      }
      hazards_.push_back(latest);
    }
  }
  // The message number of the hazardous send, or -1.
  std::int64_t hazard(std::int64_t message) const {
    const int at = hazards_[static_cast<std::size_t>(message / segments_)];
    return at < 0 ? -1 : at * segments_ + message % segments_;
  }
  // Also waits for earlier sends of the same segment.
  void wait_for_sends(std::int64_t last) {
    for (std::int64_t m = last % segments_; m <= last; m += segments_) finish(sends_[static_cast<std::size_t>(m)]);
  }
  static void finish(std::unique_ptr<Link::Message>& message) {
    if (!message) return;
    const std::unique_ptr<Link::Message> posted = std::move(message);
    posted->wait();
  }

  // The message of step k, segment s has number m = k * segments + s. Its content depends on receives of earlier steps
  // of its segment, the last of which has number m - segments: sends may therefore run ahead by the number of segments,
  // and receives by the window. No deadlock: every rank posts its sends before it waits, and a wait for message x needs
  // only messages before x (the property tests run this over a link that moves nothing until both sides have posted).
  void loop() {
    std::int64_t next_send = 0, next_recv = 0;
    for (std::int64_t done = 0; done < messages_; ++done) {
      const std::int64_t ahead = std::min(messages_, done + job_.window);
      while (next_send < std::min(ahead, done + segments_)) post_send(next_send++);
      while (next_recv < ahead && (is_staged(next_recv) || hazard(next_recv) < next_send)) post_recv(next_recv++);
      finish(recvs_[static_cast<std::size_t>(done)]);
      process(done);
    }
    for (auto& message : sends_) finish(message);
  }

  void post_send(std::int64_t m) {
    const Step& s = step(m);
    if (s.to < 0) return;
    const Range what = sent(m);
    if (what.size() == 0) return;
    const std::byte* from = s.sends == Content::input     ? input(what)
                            : s.sends == Content::partial ? work(what)
                                                          : result(what);
    sends_[static_cast<std::size_t>(m)] = link_.send(s.to, from, static_cast<std::size_t>(bytes(what, s.sends)));
  }

  void post_recv(std::int64_t m) {
    const Step& s = step(m);
    if (s.from < 0) return;
    const Range what = received(m);
    if (what.size() == 0) return;
    if (!is_staged(m) && hazard(m) >= 0) wait_for_sends(hazard(m));
    std::byte* to = is_staged(m) ? slot(m) : result(what);
    recvs_[static_cast<std::size_t>(m)] = link_.recv(s.from, to, static_cast<std::size_t>(bytes(what, s.receives)));
  }

  void process(std::int64_t m) {
    const Step& s = step(m);
    if (!is_staged(m)) return;
    const Range what = received(m);
    if (what.size() == 0) return;
    if (s.reduce) {
      if (hazard(m) >= 0) wait_for_sends(hazard(m));
      combine(s, what, slot(m));
      if (s.completes) store(what, work(what));
    } else {
      store(what, slot(m));
    }
  }

  void combine(const Step& s, Range what, const std::byte* got) {
    const std::byte* own = s.first ? input(what) : work(what);
    const bool own_wide = wide_ && !s.first, got_wide = wide_ && s.receives == Content::partial;
    void* target = work(what);
    kernels::Reduce reduce;
    reduce.number = job_.number;
    reduce.fold = job_.fold;
    // A mean divides the sum once, in the step that completes it.
    if (job_.fold == Fold::mean && !s.completes) reduce.fold = Fold::sum;
    reduce.divisor = job_.size;
    reduce.outputs = &target;
    // The lower rank's value comes first, so that both partners of an exchange compute the same bits.
    const void* inputs[] = {own, got};
    if (s.from < job_.rank) std::swap(inputs[0], inputs[1]);
    if (job_.loop != nullptr) return job_.loop(inputs, 2, &target, 1, static_cast<std::size_t>(what.size()));
    reduce.inputs = inputs;
    reduce.input_count = 2;
    if (own_wide && got_wide) {
      reduce.number = Number::fp32;
    } else if (wide_) {
      reduce.fp32_output = true;
      if (own_wide || got_wide) {
        reduce.start = own_wide ? own : got;
        inputs[0] = own_wide ? got : own;
        reduce.input_count = 1;
      }
    }
    kernels::reduce(reduce, what.size());
  }

  // Copies complete values of the accumulation type to this rank's output.
  void store(Range what, const std::byte* values) {
    const Range mine = wanted(what);
    if (mine.size() <= 0) return;
    values += (mine.begin - what.begin) * work_width_;
    std::byte* to = result(mine);
    if (to == values) return;
    if (job_.number == Number::bf16) {
      narrow<to_bf16>(to, reinterpret_cast<const float*>(values), mine.size());
    } else if (job_.number == Number::fp16) {
      narrow<to_f16>(to, reinterpret_cast<const float*>(values), mine.size());
    } else {
      std::memcpy(to, values, static_cast<std::size_t>(mine.size() * width_));
    }
  }

  // After a failure, waits until nothing can write into the caller's memory. Further failures add no information.
  void drain() noexcept {
    for (auto* list : {&recvs_, &sends_}) {
      for (auto& message : *list) {
        try {
          finish(message);
        } catch (...) {  // only the first failure is thrown
        }
      }
    }
  }

  const Job& job_;
  Link& link_;
  Schedule steps_;
  bool wide_;  // combined in fp32
  std::int64_t width_, work_width_, segments_, messages_ = 0;
  std::byte* work_ = nullptr;
  std::int64_t work_begin_ = 0;
  std::byte* staging_ = nullptr;
  std::int64_t slot_bytes_ = 0;
  std::vector<int> hazards_;
  std::vector<std::unique_ptr<Link::Message>> sends_, recvs_;
};

}  // namespace

std::byte* Scratch::grow(Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes < bytes) {
    buffer.data.reset();
    buffer.data = std::make_unique_for_overwrite<std::byte[]>(bytes);
    buffer.bytes = bytes;
  }
  return buffer.data.get();
}

void run(const Job& job, Link& link, Scratch& scratch) {
  if (job.n > 0) Run(job, link, scratch).run();
}

}  // namespace tessera::wire::ring
