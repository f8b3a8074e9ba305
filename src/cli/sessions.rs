//! `plimsoll sessions`: prints the sessions of a running proxy once, read from its API.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::{
    CommandError, CommandResult,
    ask_proxy::{AskedProxy, NoAnswer, ProxyArgs},
    block_on,
    table::{group_digits, write_table},
};
use crate::{
    config::{Environment, Flags},
    unix_time::unix_seconds_now,
};

/// The most sessions that the API puts on one page.
const PAGE_SIZE: usize = 200;

#[derive(clap::Args, Clone, Debug)]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Only the sessions of this client
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Print the JSON of the API
    #[arg(long)]
    json: bool,
}

/// One page, or all of them. A session stays JSON, so that `--json` prints every field unchanged.
#[derive(Default, Deserialize, Serialize)]
struct SessionList {
    sessions: Vec<Box<RawValue>>,
    /// The offset of the next page; `None` on the last one.
    next: Option<u64>,
    /// Only from a proxy without client keys.
    of_other_keys: Option<u64>,
    hint: Option<String>,
}

/// Prints the list of sessions, newest first.
pub(super) fn run(
    args: &SessionsArgs,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let proxy = args.proxy.find(flags, environment)?;
    let list = block_on(fetch_sessions(&proxy, args.client.as_deref()))?;
    let list = list.map_err(|why| CommandError::Command(why.to_string()))?;
    if args.json {
        let text = serde_json::to_string(&list).map_err(io::Error::from)?;
        return Ok(writeln!(out, "{text}")?);
    }
    match &list.sessions[..] {
        [] => writeln!(
            out,
            "No sessions yet: a request through the proxy begins one. A client's key shows that \
             client's sessions, the administrator's key all of them."
        )?,
        sessions => write_table(out, &format_rows(sessions))?,
    }
    if let (Some(others @ 1..), Some(hint)) = (list.of_other_keys, &list.hint) {
        writeln!(out, "Sessions of other keys: {others}. {hint}")?;
    }
    Ok(())
}

/// All pages of the list as one. An error says what to do.
async fn fetch_sessions(proxy: &AskedProxy, client: Option<&str>) -> Result<SessionList, NoAnswer> {
    let (mut all, mut next) = (SessionList::default(), Some(0));
    while let Some(skip) = next {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("skip", &skip.to_string());
        query.append_pair("take", &PAGE_SIZE.to_string());
        if let Some(name) = client {
            query.append_pair("client", name);
        }
        let path = format!("/plimsoll/api/sessions?{}", query.finish());
        let page: SessionList = proxy.ask(&path).await?;
        all.sessions.extend(page.sessions);
        // An offset that does not grow would never end.
        next = page.next.filter(|next| *next > skip);
        (all.of_other_keys, all.hint) = (page.of_other_keys, page.hint);
    }
    Ok(all)
}

/// One row per session, the heading first.
fn format_rows(sessions: &[Box<RawValue>]) -> Vec<[String; 10]> {
    let heading = [
        "session", "client", "level", "tokens", "window", "full", "model", "format", "course",
        "age",
    ];
    let now_s = unix_seconds_now();
    let mut rows = vec![heading.map(str::to_owned)];
    for session in sessions {
        let session = serde_json::from_str(session.get()).unwrap_or_default();
        rows.push(format_session(&session, now_s));
    }
    rows
}

/// The cells of one session; a missing field is shown as `?`.
fn format_session(session: &Value, now_s: u64) -> [String; 10] {
    let text = |field: &str| session[field].as_str().unwrap_or("?").to_owned();
    let tokens = |field: &str| session[field].as_u64().map_or("?".to_owned(), group_digits);
    let full = session["hard_util"].as_f64();
    let full = full.map_or("?".to_owned(), |full| format!("{:.0} %", full * 100.0));
    let updated_s = session["updated_s"].as_u64().unwrap_or(now_s);
    let number = session["course"].to_string();
    let course = match (&session["compacting"], session["countdown"].as_u64()) {
        (Value::Bool(true), _) => format!("{number}, compacting"),
        (_, Some(left)) => format!("{number}, clear in {left}"),
        (_, None) => number,
    };
    let age = match now_s.saturating_sub(updated_s) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    };
    let cells = [
        text("id"),
        text("client"),
        text("health"),
        tokens("prompt_tokens"),
        tokens("context_limit"),
        full,
        format!("{}/{}", text("provider"), text("model")),
        text("format"),
        course,
        age,
    ];
    // SECURITY: clients choose names of models, and a terminal would execute control characters.
    cells.map(|cell| cell.replace(char::is_control, "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(health: &str, numbers: &str, updated_s: u64) -> String {
        let session = format!(
            r#"{{"id":"s","model":"m\u001b[2J","provider":"p","health":"{health}",{numbers},
                "updated_s":{updated_s},"a_later_field":true}}"#
        );
        format_session(&serde_json::from_str(&session).unwrap(), 100_000).join("|")
    }

    #[test]
    fn a_row_shows_missing_fields_as_unknown_and_no_control_characters() {
        let known = r#""prompt_tokens":1500,"context_limit":8192,"hard_util":0.183,"course":2,
            "countdown":3,"compacting":false,"format":"messages""#;
        assert_eq!(
            format("critical", known, 99_941),
            "s|?|critical|1,500|8,192|18 %|p/m\u{fffd}[2J|messages|2, clear in 3|59 s"
        );
        let unknown = r#""prompt_tokens":null,"context_limit":null,"hard_util":null,"course":1,
            "countdown":null,"compacting":true"#;
        assert_eq!(
            format("unknown", unknown, 13_600),
            "s|?|unknown|?|?|?|p/m\u{fffd}[2J|?|1, compacting|1 d"
        );
    }
}
