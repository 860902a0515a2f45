#include <tessera/base/terminal.h>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace tessera {

bool on_terminal(int stream) {
  if (::isatty(stream) != 0) return true;
  const char* const passed_on = std::getenv("TESSERA_TERMINAL");
  return passed_on != nullptr &&
         std::string_view(passed_on).find(static_cast<char>('0' + stream)) != std::string_view::npos;
}

int terminal_columns(int stream) {
  winsize size{};
  if (::ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  // If the stream is the launcher's pipe, ask the session's terminal.
  const int terminal = ::open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
  const bool known = terminal >= 0 && ::ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  if (terminal >= 0) ::close(terminal);
  return known ? size.ws_col : 80;
}

}  // namespace tessera
