# Every source is formatted by the pinned clang-format; `make format` formats them.
exec "$(dirname "$0")/../../tools/format.sh" --check
