//! What is asked of the server: a script by its digest, or one plain command.

use std::sync::LazyLock;

use redis::{Arg, Cmd, ToRedisArgs};

/// A script with what all of them share; sent whole only where the server does not know it.
pub(super) struct Script {
    text: &'static str,
    digest: LazyLock<String>,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: Script = {
            const TEXT: &str = concat!(include_str!("common.lua"), include_str!($file));
            Script {
                text: TEXT,
                digest: LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned()),
            }
        };)*
    };
}

scripts! {
    FIND = "find.lua";
    SAVE = "save.lua";
    ENTER = "enter.lua";
    ROW = "row.lua";
    LIST = "list.lua";
    ORDER = "order.lua";
    SHARE = "share.lua";
    SHARED = "shared.lua";
}

impl Script {
    /// A call of this script for all names that begin with `base`.
    pub(super) fn build_call(&'static self, base: &str) -> RedisCall {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*self.digest).arg(1).arg(base);
        RedisCall {
            command,
            script: Some(self),
        }
    }
}

/// One thing to ask.
pub(super) struct RedisCall {
    pub(super) command: Cmd,
    script: Option<&'static Script>,
}

impl RedisCall {
    /// A plain command about one key.
    pub(super) fn from_command(name: &str, key: &str) -> Self {
        let mut command = redis::cmd(name);
        command.arg(key);
        Self {
            command,
            script: None,
        }
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// The call of a script with the script's text, for a server that does not know it yet. `None` of a
    /// plain command.
    pub(super) fn to_eval(&self) -> Option<Cmd> {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script?.text);
        // Behind the command's name and the digest.
        for arg in self.command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        Some(command)
    }
}
