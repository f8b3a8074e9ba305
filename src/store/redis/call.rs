//! What is asked of the server: a script by its digest, or one plain command.

use redis::Cmd;

use super::super::{Page, SessionId, keep};

/// What the script that saves is told of what is kept, in its order.
pub(super) const KEPT: [usize; 7] = [
    keep::MAX_KEPT,
    keep::MIN_KEPT,
    keep::KEPT_BYTES,
    keep::size(0),
    keep::MAX_SIBLINGS,
    keep::MAX_CONVERSATIONS,
    keep::SESSION_BYTES,
];

/// The scripts; each is sent whole only where the server does not know it.
pub(super) mod script {
    use std::sync::LazyLock;

    use super::{Call, Kind};

    pub(in super::super) struct Script {
        text: &'static str,
        digest: LazyLock<String>,
    }

    impl Script {
        pub(in super::super) const fn text(&self) -> &'static str {
            self.text
        }

        pub(super) fn digest(&self) -> &str {
            &self.digest
        }

        /// A call of this script for all names that begin so.
        pub(in super::super) fn call(&'static self, base: Vec<u8>) -> Call {
            Call {
                kind: Kind::Script(self),
                base,
                args: Vec::new(),
            }
        }
    }

    macro_rules! scripts {
        ($($name:ident = $file:literal;)*) => {
            $(pub(in super::super) static $name: Script = {
                const TEXT: &str = concat!(include_str!("common.lua"), include_str!($file));
                Script {
                    text: TEXT,
                    digest: LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned()),
                }
            };)*

            /// All of them.
            pub(in super::super) static ALL: &[&Script] = &[$(&$name),*];
        };
    }

    scripts! {
        FIND = "find.lua";
        SAVE = "save.lua";
        ENTER = "enter.lua";
        ROWS = "rows.lua";
        LIST = "list.lua";
        ORDER = "order.lua";
        SHARE = "share.lua";
        SHARED = "shared.lua";
    }
}

/// One thing to ask.
pub(super) struct Call {
    kind: Kind,
    base: Vec<u8>,
    args: Vec<Vec<u8>>,
}

enum Kind {
    Script(&'static script::Script),
    /// Its name, and what follows the base in the name of its key.
    Plain(&'static str, &'static str),
}

impl Call {
    fn plain(command: &'static str, base: Vec<u8>, key: &'static str) -> Self {
        Self {
            kind: Kind::Plain(command, key),
            base,
            args: Vec::new(),
        }
    }

    /// The version of what is shared.
    pub(super) fn version(common: Vec<u8>) -> Self {
        Self::plain("GET", common, "v")
    }

    /// The account of a session.
    pub(super) fn owner(common: Vec<u8>, id: SessionId) -> Self {
        let mut call = Self::plain("HGET", common, "o");
        call.arg(id.bytes());
        call
    }

    /// Sessions of all accounts, newest first.
    pub(super) fn listed(common: Vec<u8>, page: Page) -> Self {
        let mut call = Self::plain("ZREVRANGE", common, "l");
        let end = page.skip.saturating_add(page.take).min(isize::MAX as usize);
        // An end before the beginning is an empty list; but -1 would be the last of all.
        let begin = page
            .skip
            .min(isize::MAX as usize - 1)
            .max(usize::from(end == 0));
        call.number(begin).number(end.saturating_sub(1));
        call
    }

    /// How many sessions are in a list: that of an account, or the one of all.
    pub(super) fn count(base: Vec<u8>) -> Self {
        Self::plain("ZCARD", base, "l")
    }

    /// Whether the server takes what is written: a replica answers, and does not.
    pub(super) fn probe(common: Vec<u8>) -> Self {
        let mut call = Self::plain("SET", common, "p");
        call.number(1).arg("PX").number(60_000);
        call
    }

    pub(super) fn arg(&mut self, arg: impl AsRef<[u8]>) -> &mut Self {
        self.args.push(arg.as_ref().to_vec());
        self
    }

    pub(super) fn number(&mut self, number: impl ToString) -> &mut Self {
        self.arg(number.to_string())
    }

    /// As it is nearly always asked: a script by its digest.
    pub(super) fn short(&self) -> Cmd {
        match self.kind {
            Kind::Script(script) => self.script("EVALSHA", script.digest()),
            Kind::Plain(command, key) => {
                let mut asked = redis::cmd(command);
                asked.arg([&self.base, key.as_bytes()].concat());
                for arg in &self.args {
                    asked.arg(arg);
                }
                asked
            }
        }
    }

    /// With the script's text, for a server that does not know it yet.
    pub(super) fn long(&self) -> Cmd {
        match self.kind {
            Kind::Script(script) => self.script("EVAL", script.text()),
            Kind::Plain(..) => self.short(),
        }
    }

    fn script(&self, command: &str, script: &str) -> Cmd {
        let mut asked = redis::cmd(command);
        asked.arg(script).arg(1).arg(&self.base);
        for arg in &self.args {
            asked.arg(arg);
        }
        asked
    }
}
