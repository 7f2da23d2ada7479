"""The real OpenAI client against the gateway: streamed, not streamed, cancelled. Prints one JSON object with what it saw."""

import json
import sys

from openai import OpenAI

model, prompt, max_tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
# Nothing is hidden by a retry of the client.
client = OpenAI(max_retries=0, timeout=60)
ask = {
    "model": model,
    "messages": [{"role": "user", "content": prompt}],
    "temperature": 0,
    "max_tokens": max_tokens,
    "extra_body": {"ignore_eos": True},
}

whole = client.chat.completions.create(**ask)
stream = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
with client.chat.completions.create(**{**ask, "max_tokens": 100_000}, stream=True) as endless:
    first = next(iter(endless))

print(
    json.dumps(
        {
            "models": [one.id for one in client.models.list()],
            "whole": whole.choices[0].message.content,
            "whole_finish": whole.choices[0].finish_reason,
            "streamed": "".join(event.choices[0].delta.content or "" for event in stream if event.choices),
            "ids": len({event.id for event in stream}),
            "usage": stream[-1].usage.completion_tokens,
            "first_of_cancelled": first.object,
        }
    )
)
