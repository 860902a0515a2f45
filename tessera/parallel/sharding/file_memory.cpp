#include <tessera/parallel/sharding/file_memory.h>

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/base/unnamed_file.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tessera::parallel {

at::Tensor zeros_in_file(const std::string& folder, at::IntArrayRef sizes, at::TensorOptions options) {
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes == 0) return at::zeros(sizes, options);
  const int fd = open_unnamed_file(folder, "nothing can be offloaded");
  const int reserved =
      posix_fallocate(fd, 0, static_cast<off_t>(bytes));  // fail now, rather than with a signal in the middle of a step
  void* data = reserved == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int error = reserved == 0 ? errno : reserved;
  close(fd);
  if (data == MAP_FAILED)
    throw Error(concat("offload: ", bytes, " bytes mapped from a file in '", folder, "' (empty: TMPDIR): ",
                       write_error_text(error), "; choose a folder on a disk with enough free space"));
  return at::from_blob(data, sizes, [bytes](void* p) { munmap(p, bytes); }, options.device(at::kCPU));
}

}  // namespace tessera::parallel
