"""What `scripts/try-vllm` checks while everything runs. Exits with 1 and says what was wrong.

    check.py trace --gateway URL --spans FILE
    check.py break --gateway URL --spans FILE --signal TERM|KILL --engine URL=PID --engine URL=PID

`trace`: a streamed and a whole answer, each under a trace of the client's; the engine's span must be the child of the gateway's CLIENT
span, and that one of the client's trace. `break`: a stream whose engine gets a signal in the middle must be the same as one that nobody
disturbed, and the CLIENT span that carried it on must link to the one that broke. FILE is what `spans.py` writes.
"""

import argparse
import json
import os
import re
import secrets
import signal
import sys
import time
import urllib.request
from pathlib import Path

from openai import OpenAI

MODEL = "tiny"
PROMPT = "Tell a short story about a lighthouse. #kind=prose"
# OTLP's numbers for kinds of spans.
SERVER, CLIENT = 2, 3
# Seconds for a span to come through two exporters, for a whole answer of a slow engine, and to find the engine at work.
SPANS_WITHIN, ANSWER_WITHIN, BUSY_WITHIN = 60, 300, 5
# Length of the answer that is broken, and how much of it the client has got by then.
TOKENS, BREAK_AFTER = 500, 40


class Wrong(Exception):
    """Something is not as promised."""


def expect(holds, what):
    if not holds:
        raise Wrong(what)


class Trace:
    """A trace that the client began."""

    def __init__(self):
        self.id, self.parent = secrets.token_hex(16), secrets.token_hex(8)
        self.headers = {"traceparent": f"00-{self.id}-{self.parent}-01"}

    def spans(self, path):
        """All spans of it that have arrived."""
        if not path.exists():
            return []
        # A line that is still being written is read the next time.
        lines = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        return [span for span in map(json.loads, lines) if span["trace"] == self.id]


class Run:
    """One run of a check."""

    def __init__(self, args):
        self.client = OpenAI(base_url=f"{args.gateway}/v1", api_key="none", max_retries=0, timeout=ANSWER_WITHIN)
        self.spans = args.spans

    def ask(self, trace, **fields):
        ask = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 40, **fields}
        return self.client.chat.completions.create(**ask, extra_headers=trace.headers)

    def family(self, trace, tries, answered):
        """The trace's SERVER span, its CLIENT spans in their order, and the engine's spans by their parents, once `answered` holds."""
        until = time.monotonic() + SPANS_WITHIN
        while True:
            spans = trace.spans(self.spans)
            servers = [span for span in spans if span["service"] == "leadgate" and span["kind"] == SERVER]
            clients = [span for span in spans if span["service"] == "leadgate" and span["kind"] == CLIENT]
            clients.sort(key=lambda span: int(span["attributes"].get("http.request.resend_count", 0)))
            engine = {span["parent"]: span for span in spans if span["service"] == "vllm"}
            if len(servers) == 1 and len(clients) == tries and answered(clients, engine):
                break
            seen = [(span["service"], span["name"], span["id"], span["parent"]) for span in spans]
            expect(time.monotonic() < until, f"spans of trace {trace.id} are missing or wrong after {SPANS_WITHIN} s; there are: {seen}")
            time.sleep(0.1)
        expect(servers[0]["parent"] == trace.parent, f"the SERVER span's parent is {servers[0]['parent']}, not the client's {trace.parent}")
        expect(all(span["parent"] == servers[0]["id"] for span in clients), "a CLIENT span is not a child of the SERVER span")
        return servers[0], clients, engine


def said(events):
    """Text, finish reasons, roles, ids and usage of a stream."""
    choices = [choice for event in events for choice in event.choices]
    return {
        "text": "".join(choice.delta.content or "" for choice in choices),
        "finish": [choice.finish_reason for choice in choices if choice.finish_reason],
        "roles": sum(choice.delta.role is not None for choice in choices),
        "ids": len({event.id for event in events}),
        "usage": [(event.usage.prompt_tokens, event.usage.completion_tokens) for event in events if event.usage],
    }


def check_trace(run, _):
    for stream in (True, False):
        trace = Trace()
        answer = run.ask(trace, stream=stream)
        text = said(list(answer))["text"] if stream else answer.choices[0].message.content
        expect(text, "the answer is empty")
        _, (client,), engine = run.family(trace, 1, lambda clients, engine: clients[0]["id"] in engine)
        span = engine[client["id"]]
        print(
            f"  {'streamed' if stream else 'whole':8}  trace {trace.id}: client {trace.parent} -> gateway CLIENT {client['id']}"
            f" -> engine {span['name']} {span['id']}; {span['attributes'].get('gen_ai.usage.completion_tokens')} tokens"
        )


def running(url):
    """Requests that an engine says it is working on."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        found = re.search(r"^vllm:num_requests_running\{[^}]*\} ([0-9.]+)$", answer.read().decode(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def busy(engines):
    """The one engine that works on something. The gateway's own probes may keep the other one busy for a moment."""
    until = time.monotonic() + BUSY_WITHIN
    while True:
        found = [url for url in engines if running(url) > 0]
        if len(found) == 1:
            return found[0]
        expect(time.monotonic() < until, f"the stream is at {found} and not at one engine")


def check_break(run, args):
    engines = dict(one.rsplit("=", 1) for one in args.engine)
    fields = {"stream": True, "max_tokens": TOKENS, "stream_options": {"include_usage": True}, "extra_body": {"ignore_eos": True}}
    whole = said(list(run.ask(Trace(), **fields)))
    trace, events, longest, last, struck = Trace(), [], 0.0, time.monotonic(), None
    for event in run.ask(trace, **fields):
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        events.append(event)
        if len(events) == BREAK_AFTER:
            struck = busy(engines)
            os.kill(int(engines[struck]), getattr(signal, f"SIG{args.signal}"))
    got = said(events)
    expect(struck, f"only {len(events)} events came, no engine was stopped")
    for part, value in whole.items():
        expect(got[part] == value, f"{part} differs: {got[part]!r} and, undisturbed, {value!r}")
    server, (broken, resumed), engine = run.family(trace, 2, lambda clients, engine: clients[1]["id"] in engine)
    expect(resumed["links"] == [broken["id"]], f"the second CLIENT span links to {resumed['links']}, not to {broken['id']}")
    expect(server["attributes"].get("leadgate.resumes") == "1", f"the SERVER span says {server['attributes']}")
    print(
        f"  SIG{args.signal} to {struck} after {BREAK_AFTER} events: all {len(got['text'])} characters, finish, role, id and usage as undisturbed;"
        f" longest pause {longest:.1f} s; CLIENT {resumed['id']} links to {broken['id']} ({broken['attributes'].get('leadgate.verdict')},"
        f" {broken['attributes'].get('leadgate.reason')}), engine's span {engine[resumed['id']]['id']} is the second one's child"
    )


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("check", choices=["trace", "break"])
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--spans", required=True, type=Path)
    parser.add_argument("--signal", choices=["TERM", "KILL"], default="TERM")
    parser.add_argument("--engine", action="append", default=[])
    return parser.parse_args()


def main():
    args = arguments()
    try:
        {"trace": check_trace, "break": check_break}[args.check](Run(args), args)
    except Wrong as wrong:
        print(f"WRONG: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
