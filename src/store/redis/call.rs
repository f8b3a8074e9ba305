//! A call of the server: a script by its digest, or a plain command.

use std::sync::LazyLock;

use redis::{Arg, Cmd, ToRedisArgs};

/// A script behind the common functions. Its text is sent only if the server does not know its digest.
pub(super) struct ServerScript {
    text: &'static str,
    digest: LazyLock<String>,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: ServerScript = {
            const TEXT: &str = concat!(include_str!("common.lua"), include_str!($file));
            ServerScript {
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
    PUT_COMMANDS = "put_commands.lua";
    SHARE = "share.lua";
    SHARED = "shared.lua";
}

impl ServerScript {
    /// A call of this script for the keys whose names begin with `base`.
    pub(super) fn build_call(&'static self, base: &str) -> RedisCall {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*self.digest).arg(1).arg(base);
        RedisCall {
            command,
            script: Some(self),
        }
    }
}

pub(super) struct RedisCall {
    pub(super) command: Cmd,
    script: Option<&'static ServerScript>,
}

impl RedisCall {
    /// A plain command with its first argument, which mostly is its key.
    pub(super) fn from_command(name: &str, first: &str) -> Self {
        let (mut command, script) = (redis::cmd(name), None);
        command.arg(first);
        Self { command, script }
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// A script's call with its text instead of its digest; `None` for a plain command.
    pub(super) fn to_eval(&self) -> Option<Cmd> {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script?.text);
        // The first two are the command's name and the digest.
        for arg in self.command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        Some(command)
    }
}
