#include <tessera/train/reporting/kept_lines.h>

#include <fstream>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::train {
namespace {

constexpr std::size_t bytes_of_a_write = 1 << 20;

}  // namespace

void keep_lines(const std::string& path, std::string_view head,
                const std::function<bool(std::string_view line, bool ended)>& keep) {
  write_file_atomically(path, [&](int fd) {
    std::string waiting(head);
    const auto write = [&] {
      write_all(fd, std::as_bytes(std::span(waiting)), path);
      waiting.clear();
    };
    std::ifstream file(path, std::ios::binary);
    if (!file && path_exists(path))
      throw Error(concat("cannot read ", path, ", whose earlier lines this run continues"));
    for (std::string line; std::getline(file, line);) {
      if (!keep(line, !file.eof())) continue;
      waiting += line;
      waiting += '\n';
      if (waiting.size() >= bytes_of_a_write) write();
    }
    if (file.bad()) throw Error(concat("cannot read all of ", path, "; it is left unchanged"));
    write();
  });
}

}  // namespace tessera::train
