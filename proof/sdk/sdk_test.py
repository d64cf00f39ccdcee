"""OpenAI's library for Python against a real server."""

import json
import os
import re
import time
import unittest
import urllib.request

import openai

OUTLAST, CUT, TOOLSMITH = (os.environ[name] for name in ("OUTLAST_URL", "CUT_URL", "TOOLSMITH_URL"))
SEEDS = iter(range(2000, 3000))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


def to(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def user(content):
    return [{"role": "user", "content": content}]


def script(text):
    return user(f"seed={next(SEEDS)} {text}")


def said(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def fetch(url):
    with urllib.request.urlopen(url) as response:
        return response.read().decode()


class Completions(unittest.TestCase):
    def setUp(self):
        self.client = to(OUTLAST)
        self.create = self.client.chat.completions.create

    def is_whole(self, text, tokens):
        """Every token of a script of this length, once and in order."""
        found = [int(index) for index in re.findall(r"<(\d+):\d+> ", text)]
        self.assertEqual(found, list(range(tokens)))
        self.assertEqual(re.sub(r"<\d+:\d+> ", "", text), "")

    def test_b3_a_stream_has_the_whole_answer_a_reason_and_the_tokens(self):
        wishes = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(self.create(model="default", messages=script("tokens=50 rate=500"), **wishes))
        self.is_whole(said(chunks), 50)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-2].choices[0].finish_reason, "stop")
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.total_tokens), ([], 59))
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_b3_without_a_stream_the_answer_is_one_object(self):
        answer = self.create(model="default", messages=script("tokens=30"), temperature=0.5)
        self.is_whole(answer.choices[0].message.content, 30)
        self.assertEqual((answer.choices[0].finish_reason, answer.usage.total_tokens), ("stop", 39))

    def test_b3_tools_and_options_pass_through_there_and_back(self):
        asked = user("How is the weather in Paris?")
        wishes = {"model": "tools", "tools": TOOLS, "temperature": 0.25, "tool_choice": "auto"}
        first = self.create(messages=asked, **wishes).choices[0]
        call = first.message.tool_calls[0]
        self.assertEqual((first.finish_reason, call.id, call.function.name), ("tool_calls", "call_1", "weather"))
        self.assertEqual(json.loads(call.function.arguments), {"city": "Paris"})
        sent = json.loads(fetch(TOOLSMITH))
        self.assertEqual(sent["tools"][0]["function"], TOOLS[0]["function"])
        self.assertEqual((sent["temperature"], sent["tool_choice"]), (0.25, "auto"))
        answered = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        messages = [*asked, first.message, answered]
        self.assertEqual(said(self.create(messages=messages, stream=True, **wishes)), "It is sunny.")
        self.assertEqual(json.loads(fetch(TOOLSMITH))["messages"][-1], answered)

    def test_b3_errors_are_the_librarys_own(self):
        with self.assertRaises(openai.BadRequestError) as wrong:
            self.create(model="default", messages=[])
        self.assertEqual((wrong.exception.code, wrong.exception.param), ("invalid_request", "messages"))
        with self.assertRaises(openai.UnprocessableEntityError) as unknown:
            self.create(model="none", messages=user("hi"))
        self.assertIn("default", str(unknown.exception))
        with self.assertRaises(openai.BadRequestError) as refused:
            self.create(model="default", messages=script("tokens=5 fail=400"))
        self.assertEqual(refused.exception.code, "upstream_invalid_request")

    def test_b3_a_failure_is_not_asked_for_again(self):
        broken = script("tokens=5 fail=503")
        with self.assertRaises(openai.InternalServerError) as failed:
            openai.OpenAI(base_url=f"{OUTLAST}/v1", api_key="none").chat.completions.create(
                model="default", messages=broken, extra_body={"metadata": {"proof": "once"}}
            )
        self.assertEqual((failed.exception.status_code, failed.exception.code), (502, "upstream_failed"))
        listed = json.loads(fetch(f"{OUTLAST}/v1/generations?status=error"))["data"]
        self.assertEqual(sum(one["metadata"] == {"proof": "once"} for one in listed), 1)

    def test_b3_a_failure_in_the_middle_of_a_stream_is_raised(self):
        messages = script("tokens=50 rate=200 error_after=10 fails=1")
        with self.assertRaises(openai.APIError) as raised:
            said(self.create(model="default", messages=messages, stream=True))
        self.assertEqual(raised.exception.code, "attempt_retracted")
        self.assertRegex(raised.exception.message, r"/v1/jobs/gen_[0-9a-f]+/events")

    def test_b3_i2_a_stream_that_is_cut_in_the_middle_is_complete_in_the_jobs_events(self):
        asked = {"model": "default", "messages": script("tokens=80 rate=200"), "stream": True}
        asked["extra_body"] = {"messageId": f"cut-{time.time_ns()}"}
        raw = to(CUT).chat.completions.with_raw_response.create(**asked)
        before = ""
        with self.assertRaises(openai.APIConnectionError):
            for chunk in raw.parse():
                before += chunk.choices[0].delta.content
        self.assertTrue(before, "some of it arrived")
        lines = fetch(OUTLAST + raw.headers["outlast-job-events"]).splitlines()
        log = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        self.assertEqual(log[-1]["type"], "chat.done")
        text = "".join(event["payload"]["text"] for event in log if event["type"] == "chat.delta")
        self.is_whole(text, 80)
        self.assertTrue(text.startswith(before))
        self.assertEqual(said(self.create(**asked)), text, "a repeated request gets it too")

    def test_b3_a_background_job_through_the_library(self):
        thread = f"thread-{time.time_ns()}"
        job = {"background": True, "threadId": thread, "messageId": "m"}
        begun = self.create(model="demo", messages=user("Say 30 words"), extra_body=job)
        self.assertEqual(begun.status, "streaming")
        fetch(f"{OUTLAST}/v1/jobs/{begun.jobId}/events")
        ended = json.loads(fetch(f"{OUTLAST}/v1/jobs/{begun.jobId}"))
        self.assertEqual((ended["status"], ended["threadId"], ended["messageId"]), ("complete", thread, "m"))
        self.assertEqual(len(ended["content"].split()), 30)


if __name__ == "__main__":
    unittest.main(verbosity=2)
