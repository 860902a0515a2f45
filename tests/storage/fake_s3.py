#!/usr/bin/env python3
"""A small S3 server on loopback for tests: buckets in memory, signatures checked, and faults on demand.

    tests/storage/fake_s3.py [--port N] [--no_checksums]

Prints its port. Key "key", secret "secret". Two paths need no signature:
    POST /_control   a line "KIND METHOD TEXT TIMES": the next TIMES requests of METHOD (or *) with TEXT in their path
                     and parameters (or *) get the fault KIND; "damage PATH OFFSET" changes a stored byte; "clear"
    GET  /_log       "METHOD PATH STATUS" of every request so far
Kinds: 503, 403, drop (the connection closes without an answer), cut (half of the announced body), short (half of the
body, announced as complete), flip (one byte sent or stored is changed), lie (one stored byte is changed, and the answer
does not reveal it), etag (a wrong one), garbage (not XML), error200 (status 200 with an error body), long (more than
requested), other_range (the wrong bytes).
"""
import argparse, base64, hashlib, hmac, threading, time, urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

TABLE = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return base64.b64encode(((crc ^ 0xFFFFFFFF) & 0xFFFFFFFF).to_bytes(4, "big")).decode()


def flipped(data):
    return data[:len(data) // 2] + bytes([data[len(data) // 2] ^ 64]) + data[len(data) // 2 + 1:] if data else data


class Store:
    def __init__(self, checksums):
        self.checksums, self.lock = checksums, threading.RLock()
        self.objects, self.uploads, self.faults, self.log, self.count = {}, {}, [], [], 0

    def fault(self, method, path):
        with self.lock:
            for fault in self.faults:
                kind, wanted, text, times = fault
                if times > 0 and wanted in ("*", method) and (text == "*" or text in path):
                    fault[3] -= 1
                    return kind
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: 40 ms between them
    store = None

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", headers=(), head=False):
        with self.store.lock:
            self.store.log.append(f"{self.command} {self.path} {status}")
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name == "Content-Length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body)

    def error(self, status, code, message="as the test wanted"):
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        self.reply(status, text.encode(), head=self.command == "HEAD")

    def signature_is_right(self, body):
        try:
            fields = dict(part.strip().split("=", 1)
                          for part in self.headers["Authorization"].split(" ", 1)[1].split(","))
            key, date, region, service, _ = fields["Credential"].split("/")
            path, _, query = self.path.partition("?")
            names = fields["SignedHeaders"].split(";")
            if not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(names) or key != "key":
                return False
            claimed = self.headers["x-amz-content-sha256"]
            if claimed != "UNSIGNED-PAYLOAD" and claimed != hashlib.sha256(body).hexdigest():
                return False
            values = "".join(f"{n}:{' '.join(self.headers[n].split())}\n" for n in names)
            parameters = "&".join(sorted(p if "=" in p else p + "=" for p in query.split("&") if p))
            request = "\n".join([self.command, path, parameters, values, ";".join(names), claimed])
            text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], f"{date}/{region}/{service}/aws4_request",
                              hashlib.sha256(request.encode()).hexdigest()])
            sign = b"AWS4secret"
            for part in (date, region, service, "aws4_request"):
                sign = hmac.new(sign, part.encode(), hashlib.sha256).digest()
            return hmac.compare_digest(hmac.new(sign, text.encode(), hashlib.sha256).hexdigest(), fields["Signature"])
        except (KeyError, ValueError, TypeError, AttributeError, IndexError):
            return False

    def handle_any(self):
        path, _, query = self.path.partition("?")
        if path.startswith("/_"):
            return self.control(path)
        fault = self.store.fault(self.command, self.path)
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault == "503":
            return self.error(503, "SlowDown")
        if fault == "403":
            return self.error(403, "AccessDenied")
        if not self.signature_is_right(body):
            return self.error(403, "SignatureDoesNotMatch")
        parameters = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(path[1:]).partition("/")
        if bucket != "bucket":
            return self.error(404, "NoSuchBucket")
        with self.store.lock:
            if not key:
                return self.uploads_page(parameters) if "uploads" in parameters else self.list_page(parameters, fault)
            if "uploadId" in parameters or "uploads" in parameters:
                return self.multipart(key, parameters, body, fault)
            return self.single(key, body, fault)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def control(self, path):
        with self.store.lock:
            if path == "/_log":
                return self.reply(200, "\n".join(self.store.log).encode())
            words = self.rfile.read(int(self.headers["Content-Length"])).decode().split()
            if words[0] == "clear":
                self.store.faults, self.store.log = [], []
            elif words[0] == "damage":
                entry = self.store.objects[words[1]]
                data = bytearray(entry["data"])
                data[int(words[2])] ^= 1
                entry["data"] = bytes(data)
            elif words[0] == "erase":
                del self.store.objects[words[1]]
            elif words[0] == "put":  # an object from another program, without our metadata
                data = words[2].encode()
                etag = hashlib.md5(data).hexdigest()
                self.store.objects[words[1]] = {"data": data, "etag": etag, "crc": None, "meta": {}}
            else:
                self.store.faults.append([words[0], words[1], words[2], int(words[3])])
        self.reply(200)

    def take(self, body, fault):
        """Applies `fault` to the bytes of a PUT: (stored bytes, etag, checksum to report or None); None: refused."""
        asked = self.headers.get("x-amz-checksum-crc32c")
        if self.store.checksums and asked and asked != crc32c(body):
            self.error(400, "BadDigest")
            return None
        stored = flipped(body) if fault in ("flip", "lie") else body
        etag = "0" * 32 if fault in ("etag", "lie") else hashlib.md5(stored).hexdigest()
        tell = crc32c(stored) if self.store.checksums and fault not in ("lie", "etag") else None
        return stored, etag, tell

    def told(self, taken):
        headers = [("ETag", f'"{taken[1]}"')]
        return headers + ([("x-amz-checksum-crc32c", taken[2])] if taken[2] else [])

    def single(self, key, body, fault):
        objects = self.store.objects
        if self.command == "PUT":
            taken = self.take(body, fault)
            if taken is None:
                return
            meta = {n.lower(): v for n, v in self.headers.items() if n.lower().startswith("x-amz-meta-")}
            objects[key] = {"data": taken[0], "etag": taken[1], "crc": taken[2], "meta": meta}
            return self.reply(200, headers=self.told(taken))
        if self.command == "DELETE":
            objects.pop(key, None)
            return self.reply(204)
        if key not in objects:
            return self.error(404, "NoSuchKey")
        entry = objects[key]
        data, etag = entry["data"], entry["etag"]
        if fault == "etag":
            etag = "f" * 32
        headers = [("ETag", f'"{etag}"')] + list(entry["meta"].items())
        if self.command == "HEAD":
            return self.reply(200, headers=headers + [("Content-Length", str(len(data)))], head=True)
        wanted = self.headers.get("If-Match")
        if wanted and wanted.strip('"') != entry["etag"]:
            return self.error(412, "PreconditionFailed")
        status = 200
        if self.headers.get("Range"):
            first, last = map(int, self.headers["Range"].split("=")[1].split("-"))
            if first >= len(data):
                return self.error(416, "InvalidRange")
            total, last, status = len(data), min(last, len(data) - 1), 206
            data = data[first:last + 1]
            if fault == "other_range":
                first += 1
            headers.append(("Content-Range", f"bytes {first}-{last}/{total}"))
        if fault == "flip":
            data = flipped(data)
        if fault == "long":
            data += b"x" * 100
        if fault == "short":
            data = data[:len(data) // 2]
        if fault == "cut":
            self.close_connection = True
            self.reply(status, data[:len(data) // 2], headers + [("Content-Length", str(len(data)))])
            self.connection.close()
            return
        self.reply(status, data, headers)

    def multipart(self, key, parameters, body, fault):
        uploads = self.store.uploads
        if self.command == "POST" and "uploads" in parameters:
            self.store.count += 1
            upload = f"upload+{self.store.count}/="  # characters that must be encoded
            meta = {n.lower(): v for n, v in self.headers.items() if n.lower().startswith("x-amz-meta-")}
            uploads[upload] = {"key": key, "parts": {}, "meta": meta, "at": f"{self.store.count:08}"}
            return self.reply(200, f"<InitiateMultipartUploadResult xmlns='x'><UploadId>{upload}</UploadId>"
                                   "</InitiateMultipartUploadResult>".encode())
        upload = uploads.get(parameters["uploadId"])
        if upload is None or upload["key"] != key:
            return self.error(404, "NoSuchUpload")
        if self.command == "PUT":
            taken = self.take(body, fault)
            if taken is None:
                return
            upload["parts"][int(parameters["partNumber"])] = taken
            return self.reply(200, headers=self.told(taken))
        if self.command == "DELETE":
            del uploads[parameters["uploadId"]]
            return self.reply(204)
        if self.command == "GET":
            # Two parts per page, so that clients must page.
            after = int(parameters.get("part-number-marker", 0))
            numbers = [n for n in sorted(upload["parts"]) if n > after]
            text = ""
            for n in numbers[:2]:
                data, etag, crc = upload["parts"][n]
                text += f"<Part><PartNumber>{n}</PartNumber><ETag>&quot;{etag}&quot;</ETag><Size>{len(data)}</Size>"
                text += (f"<ChecksumCRC32C>{crc}</ChecksumCRC32C>" if crc else "") + "</Part>"
            more = len(numbers) > 2
            text += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
            text += f"<NextPartNumberMarker>{numbers[1]}</NextPartNumberMarker>" if more else ""
            return self.reply(200, f"<ListPartsResult>{text}</ListPartsResult>".encode())
        if fault == "error200":
            return self.reply(200, b"<Error><Code>InternalError</Code><Message>try again</Message></Error>")
        data = b"".join(upload["parts"][n][0] for n in sorted(upload["parts"]))
        etag = hashlib.md5(b"".join(bytes.fromhex(upload["parts"][n][1]) for n in sorted(upload["parts"]))).hexdigest()
        self.store.objects[key] = {"data": data, "etag": f"{etag}-{len(upload['parts'])}", "crc": None,
                                   "meta": upload["meta"]}
        del uploads[parameters["uploadId"]]
        self.reply(200, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")

    def uploads_page(self, parameters):
        text = "".join(f"<Upload><Key>{escape(u['key'])}</Key><UploadId>{escape(i)}</UploadId>"
                       f"<Initiated>{u['at']}</Initiated></Upload>"
                       for i, u in self.store.uploads.items() if u["key"].startswith(parameters.get("prefix", "")))
        self.reply(200, f"<ListMultipartUploadsResult>{text}</ListMultipartUploadsResult>".encode())

    def list_page(self, parameters, fault):
        if fault == "garbage":
            return self.reply(200, b"<html><body>Welcome to the hotel's network<br></body>")
        prefix, delimiter = parameters.get("prefix", ""), parameters.get("delimiter", "")
        after = base64.b64decode(parameters.get("continuation-token", "")).decode()
        entries = {}
        for key in sorted(self.store.objects):
            if not key.startswith(prefix):
                continue
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            entries[key if end < 0 else key[:end + 1]] = end >= 0
        names = [n for n in sorted(entries) if n > after]
        page, more = names[:3], len(names) > 3  # three per page
        text = "".join(
            f"<CommonPrefixes><Prefix>{escape(n)}</Prefix></CommonPrefixes>" if entries[n] else
            f"<Contents><Key>{escape(n)}</Key><Size>{len(self.store.objects[n]['data'])}</Size>"
            f"<ETag>&#34;{self.store.objects[n]['etag']}&#34;</ETag></Contents>" for n in page)
        text += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        if more:
            text += f"<NextContinuationToken>{base64.b64encode(page[-1].encode()).decode()}</NextContinuationToken>"
        self.reply(200, f"<?xml version='1.0' encoding='UTF-8'?>\n<ListBucketResult xmlns='http://s3'>{text}"
                        "</ListBucketResult>".encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--no_checksums", action="store_true", help="as stores that know no x-amz-checksum-crc32c")
    arguments = parser.parse_args()
    Handler.store = Store(not arguments.no_checksums)
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


main()
