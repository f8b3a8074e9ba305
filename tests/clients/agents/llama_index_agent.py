"""A LlamaIndex agent that is set up by its environment: the prompt is its input, the answer its output."""

import asyncio
import os
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.openai_like import OpenAILike

from lookup import lookup

# Its name says nothing to LlamaIndex, so that these three stand here. A window past the model's leaves the cuts to the proxy.
model = OpenAILike(model=sys.argv[1], api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"],
                   context_window=1_000_000, is_chat_model=True, is_function_calling_model=True, max_retries=0)


async def main():
    # Otherwise its memory drops messages by a window of its own.
    memory = ChatMemoryBuffer.from_defaults(token_limit=1_000_000)
    agent = FunctionAgent(tools=[lookup], llm=model)
    print(await agent.run(sys.stdin.read(), memory=memory, max_iterations=100))


asyncio.run(main())
