#include <tessera/parallel/sharding/file_memory.h>

#include <ATen/ATen.h>
#include <tessera/base/error.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tessera::parallel {

at::Tensor zeros_in_file(const std::string& folder, at::IntArrayRef sizes, at::TensorOptions options) {
  const char* temporary = std::getenv("TMPDIR");
  const std::string place = !folder.empty() ? folder : temporary != nullptr && *temporary != 0 ? temporary : "/tmp";
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes == 0) return at::zeros(sizes, options);
  const auto fail = [&](const char* what, int error) {
    throw Error(concat("offload: ", what, " of ", bytes, " bytes in ", place, " failed: ", std::strerror(error),
                       "; name a folder on a disk with enough room"));
  };
  const int fd = open(place.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) fail("a file", errno);
  const int reserved = posix_fallocate(fd, 0, static_cast<off_t>(bytes));  // now, not by a signal in the middle of a step
  void* data = reserved == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int error = reserved == 0 ? errno : reserved;
  close(fd);
  if (data == MAP_FAILED) fail("a mapping", error);
  return at::from_blob(data, sizes, [bytes](void* p) { munmap(p, bytes); }, options.device(at::kCPU));
}

}  // namespace tessera::parallel
