// RFC 8878, through libzstd.

#include <zstd.h>
#include <zstd_errors.h>

#include <tessera/base/error.h>
#include <tessera/corpus/bytes/compressor.h>
#include <tessera/corpus/bytes/decompressor.h>

namespace tessera::corpus {
namespace {

class Zstd : public Decompressor {
 public:
  Zstd(std::unique_ptr<ByteStream> bytes, const std::string& name)
      : Decompressor(std::move(bytes), name, "zstd"), stream_(ZSTD_createDStream()) {
    if (!stream_) throw Error("libzstd cannot be initialized: out of memory");
  }

 private:
  std::size_t step(std::string_view& input, std::span<char> to, bool last) override {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    const std::size_t status = ZSTD_decompressStream(stream_.get(), &out, &in);
    input.remove_prefix(in.pos);
    if (ZSTD_isError(status)) {
      const bool window = ZSTD_getErrorCode(status) == ZSTD_error_frameParameter_windowTooLarge;
      damaged(window
                  ? "its window is larger than 128 MiB (zstd --long=28 or more): compress it again without that option"
                  : ZSTD_getErrorName(status));
    }
    if (in.pos > 0 || out.pos > 0) complete_ = status == 0;
    return out.pos;
  }

  bool complete() const override { return complete_; }

  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_;
  bool complete_ = true;  ///< between frames
};

class ZstdCompressor : public Compressor {
 public:
  ZstdCompressor() : stream_(ZSTD_createCCtx()) {
    if (!stream_) throw Error("libzstd cannot be initialized: out of memory");
    ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_checksumFlag, 1);
  }
  void add(std::string_view bytes, std::string& out) override { run(bytes, ZSTD_e_continue, out); }
  void end(std::string& out) override { run({}, ZSTD_e_end, out); }

 private:
  void run(std::string_view bytes, ZSTD_EndDirective directive, std::string& out) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    char room[16384];
    for (;;) {
      ZSTD_outBuffer made{room, sizeof room, 0};
      const std::size_t left = ZSTD_compressStream2(stream_.get(), &made, &in, directive);
      if (ZSTD_isError(left)) throw Error(concat("libzstd cannot compress: ", ZSTD_getErrorName(left)));
      out.append(room, made.pos);
      if (in.pos == in.size && (directive == ZSTD_e_continue ? made.pos < sizeof room : left == 0)) return;
    }
  }

  struct FreeContext {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, FreeContext> stream_;
};

}  // namespace

std::unique_ptr<ByteStream> zstd_stream(std::unique_ptr<ByteStream> bytes, const std::string& name) {
  return std::make_unique<Zstd>(std::move(bytes), name);
}

std::unique_ptr<Compressor> zstd_compressor() { return std::make_unique<ZstdCompressor>(); }

}  // namespace tessera::corpus
