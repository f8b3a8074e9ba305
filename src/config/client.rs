//! Who may use the proxy: its clients and its administrator.

use super::section::{Section, is_pattern, settings};

settings! {
    #[derive(Default)]
    pub struct AdminConfig read from s {
        /// SHA-256 of the admin key.
        pub key_sha256: Option<[u8; 32]> = s.read_digest("key_sha256");
        /// Whether the administrator sees texts of conversations: prompts, reminders and summaries.
        pub show_content: bool = s.read_plain("show_content", false);
        /// Whether whoever asks without a key is shown the sessions of all keys, without texts and to read
        /// only. Never with client keys.
        pub local: bool = read_local(s);
    }
}

settings! {
    pub struct ClientConfig read from s {
        /// SHA-256 of the client key.
        pub key_sha256: [u8; 32] = read_client_key(s);
        /// Names or patterns with a trailing `*`.
        pub models: Vec<String> = s.read_patterns("models", &["*"], "a model's name");
        /// What follows `/v1/`, or its beginning with a trailing `*`: the paths this client may use. At
        /// any provider: an injected key can also stand in its `headers` or `query`.
        pub paths: Vec<String> = read_paths(s);
        /// Requests of this client that may run at one time; unset: any number.
        pub max_in_flight: Option<u32> = s.read_optional_number("max_in_flight", 1..=1_000_000,
            "it is the number of requests that may run at one time");
        /// Whether recovery may act for this client.
        pub recovery: bool = s.read_plain("recovery", true);
    }
}

/// SECURITY: `local` shows sessions to whoever comes without a key, which is nobody but users of this
/// machine only as long as nothing else may be listened on: without client keys.
fn read_local(s: &mut Section) -> bool {
    let local = s.read_plain("local", false);
    if local && !s.list_keys("clients").is_empty() {
        let message = "is for a proxy without client keys, and there are some under [clients]; set \
                       admin.key_sha256 instead, whose key sees all sessions";
        s.refuse_value("local", Some("true".to_owned()), message);
    }
    local
}

fn read_client_key(s: &mut Section) -> [u8; 32] {
    let key = "key_sha256";
    let Some(digest) = s.read_digest(key) else {
        let message = "is missing; make it with: printf %s \"$KEY\" | sha256sum";
        s.refuse_value(key, None, message);
        return [0; 32];
    };
    let name = s.section_name().to_owned();
    let twin = s.client_keys.insert(digest, name);
    if let Some(twin) = twin {
        let message = format!("is also the key of clients.{twin}; give each its own");
        s.refuse_value(key, None, message);
    }
    digest
}

fn read_paths(s: &mut Section) -> Vec<String> {
    let default = ["chat/completions", "embeddings", "models"].map(str::to_owned);
    let paths: Vec<String> = s.read_plain("paths", default.to_vec());
    let mut unfit = paths
        .iter()
        .filter(|path| path.starts_with('/') || !is_pattern(path));
    if let Some(path) = unfit.next() {
        let message = "must be what follows /v1/, or its beginning with one * at the end";
        s.refuse_text("paths", path, message);
    }
    paths
}
