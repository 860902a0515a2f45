// The .xz format, through liblzma.

#include <lzma.h>

#include <tessera/base/error.h>
#include <tessera/corpus/bytes/compressor.h>
#include <tessera/corpus/bytes/decompressor.h>

namespace tessera::corpus {
namespace {

constexpr std::uint64_t memory_limit = std::uint64_t{256} << 20;  // xz -9 needs 65 MiB

std::string reason_of(lzma_ret status) {
  switch (status) {
    case LZMA_FORMAT_ERROR:
      return "it is not an .xz file";
    case LZMA_OPTIONS_ERROR:
      return "it uses options that liblzma does not support";
    case LZMA_MEMLIMIT_ERROR:
      return concat("it needs more than ", format_bytes(memory_limit),
                    " of memory: compress it again with xz -9 or less");
    case LZMA_MEM_ERROR:
      return "out of memory";
    default:
      return "a checksum or the data are wrong";
  }
}

class Xz : public Decompressor {
 public:
  Xz(std::unique_ptr<ByteStream> bytes, const std::string& name) : Decompressor(std::move(bytes), name, "xz") {
    if (lzma_stream_decoder(&stream_, memory_limit, LZMA_CONCATENATED) != LZMA_OK)
      throw Error("liblzma cannot be initialized: out of memory");
  }
  ~Xz() override { lzma_end(&stream_); }
  Xz(const Xz&) = delete;
  Xz& operator=(const Xz&) = delete;

 private:
  std::size_t step(std::string_view& input, std::span<char> to, bool last) override {
    if (ended_) return 0;
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(input.data());
    stream_.avail_in = input.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(to.data());
    stream_.avail_out = to.size();
    const lzma_ret status = lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
    input.remove_prefix(input.size() - stream_.avail_in);
    if (status == LZMA_STREAM_END) {
      ended_ = true;
    } else if (status != LZMA_OK && status != LZMA_BUF_ERROR) {
      damaged(reason_of(status));
    }
    return to.size() - stream_.avail_out;
  }

  bool complete() const override { return ended_; }

  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ended_ = false;
};

class XzCompressor : public Compressor {
 public:
  XzCompressor() {
    constexpr std::uint32_t level = 1;
    if (lzma_easy_encoder(&stream_, level, LZMA_CHECK_CRC64) != LZMA_OK)
      throw Error("liblzma cannot be initialized: out of memory");
  }
  ~XzCompressor() override { lzma_end(&stream_); }
  XzCompressor(const XzCompressor&) = delete;
  XzCompressor& operator=(const XzCompressor&) = delete;

  void add(std::string_view bytes, std::string& out) override { run(bytes, LZMA_RUN, out); }
  void end(std::string& out) override { run({}, LZMA_FINISH, out); }

 private:
  void run(std::string_view bytes, lzma_action action, std::string& out) {
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(bytes.data());
    stream_.avail_in = bytes.size();
    char room[16384];
    lzma_ret status = LZMA_OK;
    do {
      stream_.next_out = reinterpret_cast<std::uint8_t*>(room);
      stream_.avail_out = sizeof room;
      status = lzma_code(&stream_, action);
      if (status != LZMA_OK && status != LZMA_STREAM_END && status != LZMA_BUF_ERROR)
        throw Error("liblzma cannot compress: out of memory");
      out.append(room, sizeof room - stream_.avail_out);
    } while (stream_.avail_out == 0 || (action == LZMA_FINISH && status != LZMA_STREAM_END));
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
};

}  // namespace

std::unique_ptr<ByteStream> xz_stream(std::unique_ptr<ByteStream> bytes, const std::string& name) {
  return std::make_unique<Xz>(std::move(bytes), name);
}

std::unique_ptr<Compressor> xz_compressor() { return std::make_unique<XzCompressor>(); }

}  // namespace tessera::corpus
