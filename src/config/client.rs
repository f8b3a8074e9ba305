//! Settings of clients and of the administrator.

use super::{
    format::FORMATS,
    loading::section::{Section, is_pattern, settings},
};

settings! {
    #[derive(Default)]
    pub struct AdminConfig read from s {
        pub key_sha256: Option<[u8; 32]> = s.read_digest("key_sha256");
        /// Whether the administrator sees texts: titles, recorded prompts, reminders and summaries.
        pub show_content: bool = s.read_plain("show_content", false);
        /// Whether a request without a key is shown the sessions of all keys, read-only and without texts. Never
        /// with client keys.
        pub local: bool = read_local(s);
        /// Whether a start on a terminal prints a link that opens the page for all sessions, once.
        pub link: bool = s.read_plain("link", true);
    }
}

settings! {
    pub struct ClientConfig read from s {
        pub key_sha256: [u8; 32] = read_client_key(s);
        /// Names or patterns with a `*` at the end.
        pub models: Vec<String> = s.read_patterns("models", &["*"], "a model's name");
        /// The paths after `/v1/` that this client may use, or patterns with a `*` at the end. They apply to
        /// every provider, since `headers` and `query` may contain keys too.
        pub paths: Vec<String> = read_paths(s);
        /// Unset: any number.
        pub max_in_flight: Option<u32> = s.read_optional_number("max_in_flight", 1..=1_000_000,
            "it is the number of requests that may run at one time");
        pub recovery: bool = s.read_plain("recovery", true);
        /// Whether the key reads `/metrics`, which cover all clients.
        pub metrics: bool = s.read_plain("metrics", false);
    }
}

/// SECURITY: `local` shows sessions without a key. Only users of this machine can ask as long as there are no
/// client keys, since the proxy then listens on loopback only.
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
    if let Some(other) = s.client_keys.insert(digest, name) {
        let message = format!("is also the key of clients.{other}; give each its own");
        s.refuse_value(key, None, message);
    }
    digest
}

fn read_paths(s: &mut Section) -> Vec<String> {
    let of_formats = FORMATS
        .iter()
        .flat_map(|format| [Some(format.path()), format.rules().count_path]);
    let of_formats = of_formats
        .flatten()
        .map(|path| path.trim_start_matches('/'));
    let default = of_formats.chain(["embeddings", "models"]);
    let paths: Vec<String> = s.read_plain("paths", default.map(str::to_owned).collect());
    let is_invalid = |path: &&String| path.starts_with('/') || !is_pattern(path);
    if let Some(path) = paths.iter().find(is_invalid) {
        let message = "must be what follows /v1/, or its beginning with one * at the end";
        s.refuse_text("paths", path, message);
    }
    paths
}
