#!/usr/bin/env python3
"""Makes tests/fixtures/image: small files of every kind, and Pillow's results of reading, resizing and padding them.
Needs pillow and numpy (pip install pillow numpy; written with Pillow 13.0.0).

    python3 tests/parity/image_fixture.py

expected.txt: a line per case, "FILE WHAT WIDTH HEIGHT FNV" with the 64-bit FNV-1a of the RGB bytes. JPEGs are compared
pixel by pixel with a PNG of Pillow's result instead, because another libjpeg may round differently.
"""
import io, os
import numpy as np
from PIL import Image

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "image")
MEAN = (0.48145466, 0.4578275, 0.40821073)


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return f"{value:016x}"


def picture(width, height):
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 120 * np.sin(x / 5 + y / 9), (x * 255 // max(1, width - 1)), 127 + 120 * np.cos(x * y / 70)]
    return Image.fromarray(np.stack(planes, -1).clip(0, 255).astype(np.uint8), "RGB")


def expand2square(image, colour):  # llava/mm_utils.py
    width, height = image.size
    side = max(width, height)
    result = Image.new(image.mode, (side, side), colour)
    result.paste(image, ((side - width) // 2, (side - height) // 2))
    return result


def main():
    os.makedirs(HERE, exist_ok=True)
    for name in os.listdir(HERE):
        os.remove(os.path.join(HERE, name))
    lines, base = [], picture(61, 43)
    path = lambda name: os.path.join(HERE, name)
    base.save(path("base.jpg"), quality=85)
    base.save(path("progressive.jpg"), quality=70, progressive=True)
    base.convert("L").save(path("grey.jpg"))
    base.convert("CMYK").save(path("cmyk.jpg"), quality=90)
    exif = Image.Exif()
    exif[0x0112] = 6  # a rotation, which convert("RGB") does not apply
    base.save(path("turned.jpg"), exif=exif)
    base.save(path("rgb.png"))
    base.convert("L").save(path("grey.png"))
    base.convert("1").save(path("one.png"))
    base.quantize(14).save(path("palette.png"), bits=4)
    base.quantize(16).save(path("palette_clear.png"), transparency=3)
    alpha = base.copy()
    alpha.putalpha(base.convert("L"))
    alpha.save(path("alpha.png"))
    alpha.convert("LA").save(path("grey_alpha.png"))
    Image.fromarray((np.arange(40 * 30, dtype=np.uint16) % 700).reshape(30, 40)).save(path("deep_grey.png"))
    write_interlaced(path("interlaced.png"), np.asarray(base))
    write_deep_rgb(path("deep_rgb.png"), np.asarray(base))
    for name in sorted(os.listdir(HERE)):
        image = Image.open(path(name)).convert("RGB")
        if name.endswith(".jpg"):
            image.save(path(name + ".read.png"))
        lines.append(f"{name} read {image.size[0]} {image.size[1]} {fnv(image.tobytes())}")
    for width, height in ((24, 17), (61, 30), (30, 43), (100, 71), (1, 1), (7, 200), (333, 50)):
        out = base.resize((width, height), resample=Image.BICUBIC)
        lines.append(f"rgb.png resized {width} {height} {fnv(out.tobytes())}")
    out = expand2square(base, tuple(int(x * 255) for x in MEAN))
    lines.append(f"rgb.png padded {out.size[0]} {out.size[1]} {fnv(out.tobytes())}")
    out = expand2square(base.transpose(Image.TRANSPOSE), tuple(int(x * 255) for x in MEAN))
    lines.append(f"rgb.png padded_on_side {out.size[0]} {out.size[1]} {fnv(out.tobytes())}")
    # CLIPImageProcessor, square and padded, at side 24: the RGB bytes before rescaling.
    for what, image in (("clip", base), ("clip_pad", expand2square(base, tuple(int(x * 255) for x in MEAN)))):
        short, long = sorted(image.size)
        other = int(24 * long / short)
        image = image.resize((24, other) if image.size[0] <= image.size[1] else (other, 24), resample=Image.BICUBIC)
        top, left = (image.size[1] - 24) // 2, (image.size[0] - 24) // 2
        image = image.crop((left, top, left + 24, top + 24))
        lines.append(f"rgb.png {what} 24 24 {fnv(image.tobytes())}")
    with open(path("expected.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


def chunk(kind, data):
    import struct, zlib
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(path, width, height, depth, interlaced, rows):
    import struct, zlib
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, interlaced)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
                   chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9)) + chunk(b"IEND", b""))


def write_interlaced(path, pixels):  # Adam7, which Pillow can read but not write
    rows = []
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    for y, x, dy, dx in passes:
        rows += [row.tobytes() for row in pixels[y::dy, x::dx] if row.size]
    write_png(path, pixels.shape[1], pixels.shape[0], 8, 1, rows)


def write_deep_rgb(path, pixels):
    deep = pixels.astype(">u2") * 256 + 200
    write_png(path, pixels.shape[1], pixels.shape[0], 16, 0, [row.astype(">u2").tobytes() for row in deep])


main()
