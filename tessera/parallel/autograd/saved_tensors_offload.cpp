#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/free_ranges.h>
#include <tessera/base/unnamed_file.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/autograd/saved_tensors_blocks.h>

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace tessera::parallel {
namespace {

/// Space in one unlinked file. Uses pwrite and pread rather than a mapping: touching new pages of a shared mapping
/// costs a fault each, and pages not yet written back would count as this process's memory.
class FileArea {
 public:
  explicit FileArea(const std::string& folder)
      : folder_(folder), file_(open_unnamed_file(folder, "activations cannot be offloaded")) {}
  ~FileArea() { close(file_); }
  FileArea(const FileArea&) = delete;
  FileArea& operator=(const FileArea&) = delete;

  /// First fit among freed ranges, else the end of the file.
  std::int64_t take(std::int64_t bytes) {
    bytes = rounded(bytes);
    const std::lock_guard lock(mutex_);
    if (const auto begin = free_.take(bytes)) return *begin;
    return std::exchange(end_, end_ + bytes);
  }
  void give_back(std::int64_t begin, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    free_.give(begin, rounded(bytes));
  }

  void write(const void* data, std::int64_t bytes, std::int64_t at) const {
    transfer("write", bytes, [&](std::int64_t done) {
      return pwrite(file_, static_cast<const char*>(data) + done, static_cast<std::size_t>(bytes - done), at + done);
    });
  }
  void read(void* data, std::int64_t bytes, std::int64_t at) const {
    transfer("read", bytes, [&](std::int64_t done) {
      return pread(file_, static_cast<char*>(data) + done, static_cast<std::size_t>(bytes - done), at + done);
    });
  }

 private:
  static std::int64_t rounded(std::int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

  template <class Step>
  void transfer(const char* verb, std::int64_t bytes, Step step) const {
    for (std::int64_t done = 0; done < bytes;) {
      const ssize_t moved = step(done);
      if (moved > 0) {
        done += moved;
      } else if (moved == 0 || errno != EINTR) {
        throw Error(concat("cannot ", verb, " ", bytes, " bytes of activations in ", folder_, ": ",
                           moved == 0 ? "the file ends early" : std::strerror(errno),
                           "; offload to a folder with more space, or save fewer activations"));
      }
    }
  }

  std::string folder_;
  int file_;
  std::mutex mutex_;
  FreeRanges free_;  ///< below end_
  std::int64_t end_ = 0;
};

class FileBlock final : public PackedBlock {
 public:
  FileBlock(std::shared_ptr<FileArea> area, std::shared_ptr<Account> account, const at::Tensor& flat)
      : area_(std::move(area)),
        account_(std::move(account)),
        options_(flat.options()),
        numel_(flat.numel()),
        bytes_(static_cast<std::int64_t>(flat.nbytes())),
        at_(area_->take(bytes_)) {
    account_->add(bytes_, bytes_);
    try {
      area_->write(flat.cpu().const_data_ptr(), bytes_, at_);
    } catch (...) {
      release();
      throw;
    }
  }
  ~FileBlock() override { release(); }

  at::Tensor read() override {
    at::Tensor host = at::empty({numel_}, options_.device(at::kCPU));
    area_->read(host.data_ptr(), bytes_, at_);
    return host.to(options_.device());
  }

 private:
  void release() {
    area_->give_back(at_, bytes_);
    account_->remove(bytes_);
  }

  std::shared_ptr<FileArea> area_;
  std::shared_ptr<Account> account_;
  at::TensorOptions options_;
  std::int64_t numel_, bytes_, at_;
};

/// Copies use the streams that are current when the tensor is saved and when it is used. Autograd runs an operation's
/// backward on the stream of its forward, so they are ordered.
class HostBlock final : public PackedBlock {
 public:
  HostBlock(std::shared_ptr<Account> account, const at::Tensor& flat)
      : account_(std::move(account)),
        device_(flat.device()),
        host_(at::empty({flat.numel()}, flat.options().device(at::kCPU).pinned_memory(true))) {
    host_.copy_(flat, /*non_blocking=*/true);
    account_->add(static_cast<std::int64_t>(host_.nbytes()), static_cast<std::int64_t>(host_.nbytes()));
  }
  ~HostBlock() override { account_->remove(static_cast<std::int64_t>(host_.nbytes())); }
  at::Tensor read() override { return host_.to(device_, /*non_blocking=*/true); }

 private:
  std::shared_ptr<Account> account_;
  c10::Device device_;
  at::Tensor host_;
};

class OffloadPolicy final : public BlockPolicy {
 public:
  explicit OffloadPolicy(const OffloadOptions& options) : BlockPolicy(options.min_bytes, options.keep) {
    if (options.to.empty())
      throw InputError("activations must be offloaded to a folder or to \"host\", but the destination is empty");
    if (options.to != "host") area_ = std::make_shared<FileArea>(options.to);
  }

 private:
  bool takes(const at::Tensor& tensor) const override { return area_ || !tensor.is_cpu(); }
  std::unique_ptr<PackedBlock> pack_block(const at::Tensor& flat) override {
    if (area_) return std::make_unique<FileBlock>(area_, account_, flat);
    return std::make_unique<HostBlock>(account_, flat);
  }

  std::shared_ptr<FileArea> area_;
};

}  // namespace

std::shared_ptr<SavedTensorPolicy> offload_policy(const OffloadOptions& options) {
  return std::make_shared<OffloadPolicy>(options);
}

}  // namespace tessera::parallel

namespace tessera {

OffloadActivations::OffloadActivations(const OffloadOptions& options)
    : policy_(parallel::offload_policy(options)), scope_(std::make_unique<parallel::SavedTensors>(policy_)) {}
OffloadActivations::~OffloadActivations() = default;
parallel::SavedBytes OffloadActivations::bytes() const { return policy_->bytes(); }

}  // namespace tessera
