"""Where the collector sends what it understood: `spans.py HOST:PORT FILE`.

Takes OTLP/HTTP in its JSON form and appends each span to FILE as one line of JSON with the fields that `check.py` asks about. It judges
nothing. Runs until it is stopped.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

# Longest export that is read, in bytes.
BOUND = 16 << 20


def plain(attributes):
    """OTLP's list of typed values as a dict of texts."""
    return {one["key"]: str(next(iter(one["value"].values()), "")) for one in attributes}


def spans(export):
    for resource in export.get("resourceSpans", []):
        service = plain(resource.get("resource", {}).get("attributes", [])).get("service.name", "")
        for scope in resource.get("scopeSpans", []):
            for span in scope.get("spans", []):
                yield {
                    "service": service,
                    "name": span["name"],
                    "kind": span.get("kind", 0),
                    "trace": span["traceId"],
                    "id": span["spanId"],
                    "parent": span.get("parentSpanId", ""),
                    "links": [link["spanId"] for link in span.get("links", [])],
                    "attributes": plain(span.get("attributes", [])),
                }


def handler(path):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers.get("content-length", 0))
            if not 0 < length <= BOUND:
                self.send_error(413)
                return
            lines = "".join(json.dumps(span) + "\n" for span in spans(json.loads(self.rfile.read(length))))
            with path.open("a", encoding="utf-8") as file:
                file.write(lines)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            """Nobody reads them."""

    return Handler


def main(address, path):
    host, port = address.rsplit(":", 1)
    HTTPServer((host, int(port)), handler(Path(path))).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
