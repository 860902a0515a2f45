# Every source is as the pinned clang-format has it; `make format` makes it so.
exec "$(dirname "$0")/../../tools/format.sh" --check
