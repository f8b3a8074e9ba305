//! SDKs and frameworks. Their address is an argument, so nothing is written for them.

use super::Client;

/// What all of them have in common.
const LIBRARY: Client = Client {
    name: "",
    title: "",
    programs: &[],
    asks_for: "/v1/chat/completions",
    address: "the base URL of the client object, or `OPENAI_BASE_URL`",
    base: "{base_v1}",
    model: "{model}",
    has_own_model_names: false,
    smallest_window: 0,
    window: "none",
    key: "api_key, as above, or OPENAI_API_KEY=KEY.",
    common_mistakes: "",
    was_run: true,
    files: &[],
    lines: "",
    run: None,
};

pub(super) const LIBRARIES: &[Client] = &[
    Client {
        name: "langchain",
        title: "LangChain",
        common_mistakes: "With an address of one's own, Python asks for no usage in streams: stream_usage=True.",
        lines: "ChatOpenAI(base_url=\"{base_v1}\", api_key=KEY, model=\"{model}\", stream_usage=True)",
        ..LIBRARY
    },
    Client {
        name: "llamaindex",
        title: "LlamaIndex",
        address: "the base URL of the client object",
        window: "`context_window`",
        common_mistakes: "OpenAI(…) refuses names that it does not know; OpenAILike takes 3,900 tokens where nothing is set.",
        was_run: true,
        lines: "OpenAILike(api_base=\"{base_v1}\", api_key=KEY, model=\"{model}\", is_chat_model=True,
           is_function_calling_model=True)
OpenAILike.context_window = {window}",
        ..LIBRARY
    },
    Client {
        name: "pydantic-ai",
        title: "pydantic-ai",
        common_mistakes: "The name openai:MODEL means /v1/responses, openai-chat:MODEL /v1/chat/completions.",
        lines: "OpenAIChatModel(\"{model}\", provider=OpenAIProvider(base_url=\"{base_v1}\", api_key=KEY))",
        ..LIBRARY
    },
    Client {
        name: "ai-sdk",
        title: "Vercel AI SDK",
        address: "the base URL of the client object",
        key: "apiKey, as above.",
        common_mistakes: "createOpenAI({ baseURL })(MODEL) asks for /v1/responses and refers to stored items: .chat(MODEL) does not.",
        lines: "createOpenAICompatible({ name: \"plimsoll\", baseURL: \"{base_v1}\", apiKey: KEY, includeUsage: true })
  .chatModel(\"{model}\")",
        ..LIBRARY
    },
    Client {
        name: "openai",
        title: "OpenAI SDK",
        common_mistakes: "It tries again by itself, twice, after 429 and 5xx: leave [retry] of the proxy off.",
        lines: "export OPENAI_BASE_URL={base_v1}
OpenAI(base_url=\"{base_v1}\", api_key=KEY)",
        ..LIBRARY
    },
    Client {
        name: "anthropic",
        title: "Anthropic SDK",
        asks_for: "/v1/messages",
        address: "the base URL of the client object, or `ANTHROPIC_BASE_URL`",
        base: "{base}",
        key: "api_key, as above, or ANTHROPIC_API_KEY=KEY.",
        common_mistakes: "The address has no /v1. Its tool runner asks the provider to hold the conversation: thread=False.",
        lines: "export ANTHROPIC_BASE_URL={base}
Anthropic(base_url=\"{base}\", api_key=KEY)",
        ..LIBRARY
    },
];
