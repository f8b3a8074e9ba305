"""An engine with a window of 16,384 tokens whose model writes the file that aider's user asks for, as aider wants it."""

import re

from harness import Answers


class AiderModel(Answers):
    FILES, WINDOW = 16, 16_384
    # Some 1,400 tokens.
    LINES = 100

    @classmethod
    def settings(cls, port):
        return f"""
[server]
data_dir = "data"

[providers.local]
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
profile = "openai"
ask_models = false

[models."local/aider"]
context_length = {cls.WINDOW}
"""

    def model_aider(self, _):
        prompt = len(self.raw) // 4
        self.usage = {"prompt_tokens": prompt, "completion_tokens": 1500, "total_tokens": prompt + 1500}
        refused = self.provider.requests[-1]["refused"] = prompt > self.WINDOW
        if refused:
            self.answer(400, {"error": {"message": f"request ({prompt} tokens) exceeds the available context size "
                                        f"({self.WINDOW} tokens)", "type": "exceed_context_size_error"}})
            return
        asked = [str(one["content"]) for one in self.body["messages"] if one["role"] == "user"]
        wanted = re.findall(r"Write (file\d+\.txt), please", asked[-1])
        if not wanted:
            self.say({"content": "Files were written, one after the other."})
            return
        lines = "".join(f"{wanted[-1]}, line {at}: wind and rain, a rising tide\n" for at in range(self.LINES))
        self.say({"content": f"{wanted[-1]}\n```\n<<<<<<< SEARCH\n=======\n{lines}>>>>>>> REPLACE\n```\n"})
