/// \file
/// The baseline of load_bench and resume_bench: reads files into fresh memory with read(), as a plain C program would.
/// Prints {"seconds", "cpu_seconds", "bytes"}.
///
///   read_bytes [--huge] [--share RANK RANKS] FILE...        all of each file, or part RANK of RANKS equal ones
///
/// --huge: uses memory that is advised to have huge pages, like the tensors of a run. On a virtual machine whose
/// free memory returns to its host in blocks of that size, such memory is also new to the host.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

double now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Bytes read, or -1.
char* fresh_memory(size_t bytes, bool huge) {
  if (!huge) return static_cast<char*>(malloc(bytes));
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<char*>(memory);
}

ssize_t read_share(const char* path, long rank, long ranks, bool huge) {
  const int file = open(path, O_RDONLY);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) return -1;
  const off_t begin = status.st_size * rank / ranks, bytes = status.st_size * (rank + 1) / ranks - begin;
  if (lseek(file, begin, SEEK_SET) != begin) return -1;
  char* memory = fresh_memory(static_cast<size_t>(bytes), huge);  // not freed, because a program that reads a model
                                                                  // keeps it, too
  ssize_t done = 0;
  while (memory && done < bytes) {
    const ssize_t n = read(file, memory + done, static_cast<size_t>(bytes - done));
    if (n <= 0) return -1;
    done += n;
  }
  close(file);
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  const double begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  long long bytes = 0;
  const bool huge = argc > 1 && std::strcmp(argv[1], "--huge") == 0;
  if (huge) ++argv, --argc;
  const bool share = argc > 4 && std::strcmp(argv[1], "--share") == 0;
  const long rank = share ? std::atol(argv[2]) : 0, ranks = share ? std::atol(argv[3]) : 1;
  for (int i = share ? 4 : 1; i < argc; ++i) {
    const ssize_t n = read_share(argv[i], rank, ranks, huge);
    if (n < 0) return std::perror(argv[i]), 1;
    bytes += n;
  }
  std::printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"bytes\": %lld}\n", now(CLOCK_MONOTONIC) - begin,
              now(CLOCK_PROCESS_CPUTIME_ID) - cpu, bytes);
  return 0;
}
