#include <tessera/checkpoint/shard_file.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/checkpoint/direct_file.h>
#include <tessera/checkpoint/finite.h>
#include <tessera/checkpoint/read_back.h>
#include <tessera/checkpoint/staging.h>
#include <tessera/checkpoint/tensor_bridge.h>

namespace tessera::checkpoint {
namespace {

constexpr std::size_t at_once = std::size_t{8}
                                << 20;     // bytes per call: large enough for the disk, small enough to be stopped
constexpr std::size_t data_alignment = 8;  // the first tensor starts at a multiple of it, as in the reference writer

std::size_t tensor_bytes(const format::TensorSpec& tensor) {
  std::size_t bytes = format::dtype_size(tensor.dtype);
  for (const std::int64_t n : tensor.shape) bytes *= static_cast<std::size_t>(n);
  return bytes;
}

std::string front_of(const std::vector<format::TensorSpec>& tensors) {
  return format::safetensors_front(tensors, {{"format", "pt"}}, data_alignment);
}

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(concat(what, " ", path, ": ", write_error_text(errno)));
}

void stop_if(const std::atomic<bool>& cancelled, const std::string& path) {
  if (cancelled.load(std::memory_order_relaxed)) throw Error(concat(path, ": writing was stopped"));
}

}  // namespace

std::size_t ShardFile::image_bytes(const std::vector<format::TensorSpec>& tensors) {
  std::size_t bytes = front_of(tensors).size();
  for (const format::TensorSpec& tensor : tensors) bytes += tensor_bytes(tensor);
  return aligned_size(bytes);
}

ShardFile::ShardFile(std::string name, std::vector<format::TensorSpec> tensors, std::span<std::byte> memory)
    : name_(std::move(name)), tensors_(std::move(tensors)), memory_(memory) {
  begin(front_of(tensors_));
}

ShardFile::ShardFile(std::string name, std::vector<format::TensorSpec> tensors, const std::string& folder)
    : name_(std::move(name)), path_(path_join(folder, name_)), tensors_(std::move(tensors)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("cannot create", path_);
  begin(front_of(tensors_));
}

ShardFile::~ShardFile() {
  if (fd_ >= 0) ::close(fd_);
}

ShardFile::ShardFile(ShardFile&& other) noexcept
    : name_(std::move(other.name_)),
      path_(std::move(other.path_)),
      tensors_(std::move(other.tensors_)),
      data_begin_(other.data_begin_),
      size_(other.size_),
      filled_(other.filled_),
      tensor_(other.tensor_),
      tensor_end_(other.tensor_end_),
      memory_(other.memory_),
      fd_(std::exchange(other.fd_, -1)),
      not_finite_(std::move(other.not_finite_)),
      builder_(std::move(other.builder_)),
      digest_(std::move(other.digest_)),
      times_(other.times_) {}

void ShardFile::begin(const std::string& front) {
  data_begin_ = size_ = front.size();
  for (const format::TensorSpec& tensor : tensors_) size_ += tensor_bytes(tensor);
  TESSERA_CHECK(fd_ >= 0 || memory_.size() >= aligned_size(size_), name_, ": ", memory_.size(), " bytes of memory for ",
                size_);
  put(std::as_bytes(std::span(front)));
  tensor_end_ = data_begin_ + (tensors_.empty() ? 0 : tensor_bytes(tensors_[0]));
}

void ShardFile::put(std::span<const std::byte> bytes) {
  if (fd_ >= 0) {
    const std::int64_t start_ns = monotonic_ns();
    builder_.update(bytes);
    write_all(fd_, bytes, path_);
    times_.write += seconds_since(start_ns);
  } else {
    builder_.copy(memory_.data() + filled_, bytes);
  }
  filled_ += bytes.size();
}

void ShardFile::append(const at::Tensor& piece) {
  const at::NoGradGuard no_grad;
  while (filled_ == tensor_end_ && tensor_ + 1 < tensors_.size()) tensor_end_ += tensor_bytes(tensors_[++tensor_]);
  const at::Tensor plain = piece.detach().resolve_neg().cpu().contiguous();
  TESSERA_CHECK(tensor_ < tensors_.size() && dtype_of(plain.scalar_type()) == tensors_[tensor_].dtype &&
                    filled_ + plain.nbytes() <= tensor_end_,
                name_, ": a piece of ", plain.nbytes(), " bytes of ", c10::toString(plain.scalar_type()),
                " does not follow byte ", filled_);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes());
  if (fd_ >= 0 && (not_finite_.empty() || not_finite_.back() != tensor_) && !all_finite(bytes, tensors_[tensor_].dtype))
    not_finite_.push_back(tensor_);
  put(bytes);
}

void ShardFile::check_finite(Tensors finite) const {
  for (const std::size_t i : not_finite_)
    if (i >= finite.begin && i < finite.end) throw Error(not_finite_text(tensors_[i].name));
  std::size_t at = data_begin_;
  for (std::size_t i = 0; i < finite.end && !memory_.empty(); ++i) {
    const std::size_t bytes = tensor_bytes(tensors_[i]);
    if (i >= finite.begin && !all_finite(memory_.subspan(at, bytes), tensors_[i].dtype))
      throw Error(not_finite_text(tensors_[i].name));
    at += bytes;
  }
}

void ShardFile::write_image(const std::string& path, const std::atomic<bool>& cancelled) const {
  const DirectFile file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.fd() < 0) fail("cannot create", path);
  const std::size_t all = aligned_size(size_);
  std::memset(memory_.data() + size_, 0, all - size_);
  for (std::size_t done = 0; done < all;) {
    stop_if(cancelled, path);
    const ssize_t n =
        ::pwrite(file.fd(), memory_.data() + done, std::min(at_once, all - done), static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot write", path);
    if (n == 0) throw Error(concat("cannot write ", path, ": only ", done, " of ", all, " bytes were accepted"));
    // direct I/O continues at multiples of the alignment; after a short write the rest of a block is written again
    done = done + static_cast<std::size_t>(n) == all
               ? all
               : (done + static_cast<std::size_t>(n)) / io_alignment * io_alignment;
    if (static_cast<std::size_t>(n) < io_alignment && done < all) {
      errno = ENOSPC;  // less than a block at a time: the disk is full
      fail("cannot write", path);
    }
  }
  if (::ftruncate(file.fd(), static_cast<off_t>(size_)) != 0) fail("cannot set the length of", path);
  if (::fsync(file.fd()) != 0) fail("cannot sync to disk:", path);
}

format::ManifestFile ShardFile::write(const std::string& folder, Tensors finite, const std::atomic<bool>& cancelled) {
  TESSERA_CHECK(filled_ == size_, name_, ": ", filled_, " of ", size_, " bytes were given");
  check_finite(finite);
  digest_ = std::move(builder_).finish();
  const std::string path = path_join(folder, name_);
  const std::int64_t start_ns = monotonic_ns();
  if (fd_ < 0) {
    write_image(path, cancelled);
  } else {
    const int fd = std::exchange(fd_, -1);
    const int failed = ::fsync(fd) != 0 ? errno : 0;
    ::close(fd);
    errno = failed;
    if (failed != 0) fail("cannot sync to disk:", path);
  }
  times_.write += seconds_since(start_ns);
  const std::int64_t reading_ns = monotonic_ns();
  read_back(path, digest_, cancelled);
  times_.read_back = seconds_since(reading_ns);
  return {name_, digest_};
}

}  // namespace tessera::checkpoint
