// In every test program with LibTorch: ends it before LibTorch's destructors, as the program `tessera` does. They take
// tables of operators apart for 0.2 s of computing, in each of the hundreds of processes that run the tests.
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

namespace {

// Handlers run in reverse: before the first object of the program is made, but after the libraries' own. So the
// program's objects have ended by then.
[[gnu::constructor(101)]] void end_before_libtorch() {
  ::on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
}

}  // namespace
