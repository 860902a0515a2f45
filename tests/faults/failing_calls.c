/* LD_PRELOAD library: on one rank, chosen system calls on the files of a checkpoint fail. Built by io_errors.py.

   Calls on paths that contain FAULT_BELOW and "/checkpoint-", and fsyncs of FAULT_BELOW itself, are counted per save: a
   save starts with the first path checkpoint-N.tmp.*, and the following calls on other checkpoints (renaming, pruning)
   belong to it. In the save of an even step N, call N/2 - 1 fails with FAULT_ERRNO, or, with FAULT_STICKY, that call
   and all that follow. Odd saves are unaffected.

   FAULT_FLIP: that call, if it writes, succeeds, but writes a flipped bit, as a failing disk or cable does. FAULT_LOG
   then contains flips only.

   FAULT_RANK   the rank (its variable RANK)        FAULT_LOG   receives a line "SAVE CALL NAME PATH" for each failure
   FAULT_COUNT  nothing fails; every call is logged */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long save = 0, call = 0;

static int chosen_rank(void) {
  const char *asked = getenv("FAULT_RANK"), *rank = getenv("RANK");
  return asked && rank && strcmp(asked, rank) == 0;
}

static void tell(const char* name, const char* path) {
  char line[4400];
  const char* log = getenv("FAULT_LOG");
  if (!log) return;
  const int length = snprintf(line, sizeof line, "%ld %ld %s %s\n", save, call, name, path);
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  if (syscall(SYS_write, fd, line, (size_t)length) != length) abort();
  syscall(SYS_close, fd);
}

/* Whether this call is to fail; errno is set then. */
static int fails(const char* name, const char* path) {
  const char* below = getenv("FAULT_BELOW");
  if (!below || !path || !chosen_rank()) return 0;
  const size_t length = strlen(below);
  const int folder_itself = strncmp(path, below, length) == 0 && (path[length] == 0 || strcmp(path + length, "/") == 0);
  const char* part = strncmp(path, below, length) == 0 ? strstr(path + length, "/checkpoint-") : NULL;
  if (!part && !(folder_itself && strstr(name, "sync"))) return 0;
  pthread_mutex_lock(&lock);
  if (part) {
    char* end = NULL;
    const long step = strtol(part + strlen("/checkpoint-"), &end, 10);
    if (strncmp(end, ".tmp.", 5) == 0 && step > save) save = step, call = 0;
  }
  int failing = 0;
  if (save > 0) {
    const long at = save / 2 - 1;
    if (getenv("FAULT_COUNT"))
      tell(name, path);
    else if (save % 2 == 0 && (call == at || (call > at && getenv("FAULT_STICKY"))) &&
             (!getenv("FAULT_FLIP") || strstr(name, "write")))
      failing = 1, tell(name, path);
    ++call;
  }
  pthread_mutex_unlock(&lock);
  if (failing) errno = getenv("FAULT_FLIP") ? 0 : atoi(getenv("FAULT_ERRNO"));
  return failing;
}

static int fails_fd(const char* name, int fd) {
  char link[64], path[4096];
  if (!getenv("FAULT_BELOW") || !chosen_rank()) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = syscall(SYS_readlink, link, path, sizeof path - 1);
  if (n <= 0) return 0;
  path[n] = 0;
  return fails(name, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
/* A call on a path, and one on a descriptor. */
#define ON_PATH(result, name, parameters, path, arguments) \
  result name parameters { return fails(#name, path) ? -1 : REAL(name) arguments; }
#define ON_FD(result, name, parameters, fd, arguments) \
  result name parameters { return fails_fd(#name, fd) ? -1 : REAL(name) arguments; }
#define OPEN(name, parameters, path, passed)                                           \
  int name parameters {                                                                \
    va_list more;                                                                      \
    va_start(more, flags);                                                             \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(more, int) : 0; \
    va_end(more);                                                                      \
    return fails(#name, path) ? -1 : REAL(name) passed;                                \
  }

OPEN(open, (const char* path, int flags, ...), path, (path, flags, mode))
OPEN(open64, (const char* path, int flags, ...), path, (path, flags, mode))
OPEN(openat, (int folder, const char* path, int flags, ...), path, (folder, path, flags, mode))
OPEN(openat64, (int folder, const char* path, int flags, ...), path, (folder, path, flags, mode))
/* The same for what writes: FAULT_FLIP changes a bit in the middle, in a copy that suits direct I/O. */
#define WRITES(name, parameters, passed)                \
  ssize_t name parameters {                             \
    void* copy = NULL;                                  \
    if (fails_fd(#name, fd)) {                          \
      if (errno != 0 || n == 0) return -1;              \
      if (posix_memalign(&copy, 4096, n) != 0) abort(); \
      memcpy(copy, data, n);                            \
      ((unsigned char*)copy)[n / 2] ^= 16;              \
      data = copy;                                      \
    }                                                   \
    const ssize_t result = REAL(name) passed;           \
    free(copy);                                         \
    return result;                                      \
  }
WRITES(write, (int fd, const void* data, size_t n), (fd, data, n))
WRITES(pwrite, (int fd, const void* data, size_t n, off_t at), (fd, data, n, at))
WRITES(pwrite64, (int fd, const void* data, size_t n, off64_t at), (fd, data, n, at))
ON_FD(ssize_t, writev, (int fd, const struct iovec* parts, int n), fd, (fd, parts, n))
ON_FD(ssize_t, read, (int fd, void* data, size_t n), fd, (fd, data, n))
ON_FD(ssize_t, pread, (int fd, void* data, size_t n, off_t at), fd, (fd, data, n, at))
ON_FD(ssize_t, pread64, (int fd, void* data, size_t n, off64_t at), fd, (fd, data, n, at))
ON_FD(int, fsync, (int fd), fd, (fd))
ON_FD(int, fdatasync, (int fd), fd, (fd))
ON_FD(int, ftruncate, (int fd, off_t size), fd, (fd, size))
ON_FD(int, ftruncate64, (int fd, off64_t size), fd, (fd, size))
ON_FD(int, fallocate, (int fd, int mode, off_t at, off_t size), fd, (fd, mode, at, size))
ON_FD(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), fd, (fd, mode, at, size))
ON_PATH(int, mkdir, (const char* path, mode_t mode), path, (path, mode))
ON_PATH(int, rename, (const char* from, const char* to), from, (from, to))
ON_PATH(int, renameat2, (int a, const char* from, int b, const char* to, unsigned flags), from, (a, from, b, to, flags))
