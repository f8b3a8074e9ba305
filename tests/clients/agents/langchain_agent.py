"""A LangChain agent that is set up by its environment: the prompt is its input, the answer its output."""

import sys

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from lookup import lookup

model = ChatOpenAI(model=sys.argv[1], max_retries=0).bind_tools([tool(lookup)])
messages = [HumanMessage(sys.stdin.read())]
while len(messages) == 1 or messages[-1].type == "tool":
    answer = model.invoke(messages)
    messages += [answer, *(tool(lookup).invoke(call) for call in answer.tool_calls)]
print(messages[-1].content)
