#include <tessera/base/system/file_limit.h>

#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include <tessera/base/text.h>

namespace tessera {

void ignore_file_limit_signal() {
  struct sigaction present{};
  if (::sigaction(SIGXFSZ, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) ::signal(SIGXFSZ, SIG_IGN);
}

std::string write_error_text(int error) {
  rlimit limit{};
  if (error != EFBIG || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::strerror(error);
  return concat(std::strerror(error), ": this process may write files of at most ", limit.rlim_cur,
                " bytes; raise that limit (ulimit -f unlimited)");
}

}  // namespace tessera
