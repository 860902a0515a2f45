#include <tessera/parallel/compression/half.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/comm/backend.h>

#include <functional>
#include <utility>

namespace tessera::parallel {

namespace {

// A collective with a local continuation on its result.
class Then final : public comm::Pending {
 public:
  Then(comm::Work work, std::function<void()> after) : work_(std::move(work)), after_(std::move(after)) {}
  void wait() override {
    if (!after_) return;
    work_.wait();
    const at::NoGradGuard no_grad;
    std::exchange(after_, nullptr)();
  }
  bool done() override { return !after_ || work_.done(); }

 private:
  comm::Work work_;
  std::function<void()> after_;
};

comm::Work then(comm::Work work, std::function<void()> after) {
  return comm::Work(std::make_shared<Then>(std::move(work), std::move(after)));
}

}  // namespace

std::string HalfCompression::name() const { return dtype_ == at::kHalf ? "fp16" : "bf16"; }

comm::Work HalfCompression::reduce(const ReductionRequest& request) {
  const at::NoGradGuard no_grad;
  begin(request);
  const comm::Group group = request.group;
  if (group.size() == 1 || request.flat.scalar_type() == dtype_) return plain(request);
  const std::int64_t size = group.size(), n = request.flat.numel(), part = (n + size - 1) / size;
  at::Tensor half = request.flat.to(dtype_);
  if (part * size != n) half = at::cat({half, at::zeros({part * size - n}, half.options())});
  const double over = divisor(request);
  const at::Tensor output = request.output;
  const bool in_place = request.scatter && output.scalar_type() == at::kFloat;
  const at::Tensor sum = in_place ? output.zero_() : at::zeros({part}, half.options().dtype(at::kFloat));
  comm::Work summed = accumulate_scatter(group, sum, half);
  if (request.scatter) {
    return then(std::move(summed), [=] {
      if (over != 1) sum.div_(over);
      if (!in_place) output.copy_(sum);
    });
  }
  summed.wait();
  const at::Tensor mine = sum.div_(over).to(dtype_);
  comm::Work gathered = all_gather(group, half, mine);
  return then(std::move(gathered), [=] { output.copy_(half.narrow(0, 0, n)); });
}

}  // namespace tessera::parallel
