//! `plimsoll top`: the sessions of a running proxy in the terminal, live.
//!
//! Where the output is no terminal, or with `--once`, it is one table. It reads the proxy's API as any
//! client does, and changes nothing.

mod feed;
mod fleet;
mod view;

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, widgets::TableState};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{self, Receiver},
};

pub(in crate::cli) use self::feed::FeedError;
use self::{
    feed::{Feed, News},
    fleet::Fleet,
    view::Scene,
};
use super::{Failed, table};
use crate::config::{Environment, Flags, load, secret::Secret};

/// Ages grow by themselves, so that a picture is never older than this.
const REDRAW: Duration = Duration::from_secs(1);
/// Pictures are at least so far apart, however much there is to tell.
const FRAME: Duration = Duration::from_millis(50);
/// Rows of a page, for the keys that turn one.
const PAGE: isize = 20;
/// Held beside a letter, they make it another key.
const CHORDS: KeyModifiers = KeyModifiers::CONTROL.union(KeyModifiers::ALT);
/// News that wait to be drawn.
const WAITING: usize = 1_024;

/// Options of `plimsoll top`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Args {
    /// Where the proxy is [default: where the settings say that it listens]
    #[arg(long, value_name = "ADDRESS")]
    url: Option<String>,
    /// The environment variable that holds a client's key or the administrator's
    #[arg(long, value_name = "NAME", default_value = "PLIMSOLL_KEY")]
    key_env: String,
    /// Print the list once
    #[arg(long)]
    once: bool,
}

/// Shows the list until it is quit.
///
/// # Errors
/// The proxy is not there at the start or refuses the key, or the terminal cannot be used.
pub(super) fn run(args: &Args, flags: &Flags, environment: &Environment) -> Result<(), Failed> {
    let address = match &args.url {
        Some(url) => url.clone(),
        None => format!("http://{}", load(flags, environment)?.config.server.listen),
    };
    let key = environment.value(&args.key_env).map(Secret::new);
    let feed = Feed::new(&address, key).map_err(Failed::Top)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Failed::Start)?;
    // Known before the terminal is taken, so that what is wrong can be read.
    let sessions = runtime.block_on(feed.all()).map_err(Failed::Top)?;
    let mut fleet = Fleet::default();
    fleet.replace(sessions);
    if args.once || !io::stdout().is_terminal() {
        let mut out = io::stdout().lock();
        table::write(&mut out, &view::rows(&fleet, now_s()))?;
        return Ok(out.flush()?);
    }
    let (news, heard) = mpsc::channel(WAITING);
    let address = feed.shown();
    let following = runtime.spawn(feed.follow(news));
    let told = Arc::<AtomicBool>::default();
    let signals = runtime.spawn(stopped(Arc::clone(&told)));
    let mut terminal = ratatui::try_init()?;
    let shown = Screen::new(fleet, address, heard).run(&mut terminal, &told);
    ratatui::try_restore()?;
    following.abort();
    signals.abort();
    runtime.shutdown_background();
    Ok(shown?)
}

/// Everything that is on the screen.
struct Screen {
    fleet: Fleet,
    address: String,
    heard: Receiver<News>,
    lost: Option<String>,
    /// The search before it was begun to be typed anew.
    typing: Option<String>,
    table: TableState,
    colour: bool,
}

impl Screen {
    fn new(fleet: Fleet, address: String, heard: Receiver<News>) -> Self {
        Self {
            fleet,
            address,
            heard,
            lost: Some("connecting".to_owned()),
            typing: None,
            table: TableState::new(),
            colour: std::env::var_os("NO_COLOR").is_none(),
        }
    }

    /// Until it is quit, or told to end.
    fn run(&mut self, terminal: &mut DefaultTerminal, told: &AtomicBool) -> io::Result<()> {
        loop {
            let changed = self.hear();
            terminal.draw(|frame| self.draw(frame))?;
            // Keys are answered at once, news a frame later at most.
            let mut left = REDRAW;
            while !left.is_zero() {
                if crossterm::event::poll(FRAME)? {
                    if let Event::Key(key) = crossterm::event::read()?
                        && !self.key(key)
                    {
                        return Ok(());
                    }
                    break;
                }
                if told.load(Relaxed) {
                    return Ok(());
                }
                if changed || !self.heard.is_empty() {
                    break;
                }
                left = left.saturating_sub(FRAME);
            }
        }
    }

    fn draw(&mut self, frame: &mut ratatui::Frame<'_>) {
        let scene = Scene {
            fleet: &self.fleet,
            address: &self.address,
            lost: self.lost.as_deref(),
            typing: self.typing.is_some(),
            colour: self.colour,
            now_s: now_s(),
        };
        view::draw(frame, &scene, &mut self.table);
    }

    /// Takes all news that came; whether there were any.
    fn hear(&mut self) -> bool {
        let mut changed = Vec::new();
        let mut any = false;
        while let Ok(news) = self.heard.try_recv() {
            any = true;
            match news {
                News::All(sessions) => {
                    changed.clear();
                    self.fleet.replace(sessions);
                }
                News::Changed(session) => changed.push(*session),
                News::Live => self.lost = None,
                News::Lost(reason) => self.lost = Some(reason),
            }
        }
        if !changed.is_empty() {
            self.fleet.update(changed);
        }
        any
    }

    /// Carries a key out. `false`: the last one.
    fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return true;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return false;
        }
        if self.typing.is_some() {
            self.type_in(key.code, key.modifiers);
            return true;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Up | KeyCode::Char('k') => self.fleet.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.fleet.step(1),
            KeyCode::PageUp => self.fleet.step(-PAGE),
            KeyCode::PageDown => self.fleet.step(PAGE),
            KeyCode::Home => self.fleet.step(isize::MIN),
            KeyCode::End => self.fleet.step(isize::MAX),
            KeyCode::Char('s') => self.fleet.next_sort(),
            KeyCode::Char('r') => self.fleet.reverse(),
            KeyCode::Char('/') => self.typing = Some(self.fleet.searched().to_owned()),
            _ => {}
        }
        true
    }

    fn type_in(&mut self, code: KeyCode, modifiers: KeyModifiers) {
        let mut words = self.fleet.searched().to_owned();
        match code {
            KeyCode::Enter => self.typing = None,
            KeyCode::Esc => {
                let before = self.typing.take().unwrap_or_default();
                self.fleet.search(&before);
            }
            KeyCode::Backspace => {
                words.pop();
                self.fleet.search(&words);
            }
            // A shortcut is no letter.
            KeyCode::Char(_) if modifiers.intersects(CHORDS) => {}
            KeyCode::Char(letter) => {
                words.push(letter);
                self.fleet.search(&words);
            }
            _ => {}
        }
    }
}

/// Notes that somebody told the process to end, so that the terminal is given back first.
async fn stopped(told: Arc<AtomicBool>) {
    let signals = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ];
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = signals.map(signal) else {
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
    told.store(true, Relaxed);
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{fleet::tests::session, *};

    fn screen() -> (Screen, mpsc::Sender<News>) {
        let (news, heard) = mpsc::channel(8);
        let mut fleet = Fleet::default();
        fleet.replace(vec![session("a", Some(1), 2), session("b", None, 1)]);
        (Screen::new(fleet, String::new(), heard), news)
    }

    fn press(screen: &mut Screen, keys: &str) -> bool {
        keys.chars().all(|key| {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\x08' => KeyCode::Backspace,
                key => KeyCode::Char(key),
            };
            screen.key(code.into())
        })
    }

    #[test]
    fn keys_move_sort_and_quit() {
        let (mut screen, _news) = screen();
        assert!(press(&mut screen, "jjsr"));
        assert_eq!(screen.fleet.chosen(), Some(0));
        assert_eq!(screen.fleet.sorted(), (fleet::Sort::Fullness, true));
        for last in [KeyCode::Char('q').into(), KeyCode::Esc.into()] {
            assert!(!screen.key(last));
        }
        let ended = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!screen.key(ended));
    }

    #[test]
    fn a_search_is_typed_kept_and_given_up() {
        let (mut screen, _news) = screen();
        assert!(press(&mut screen, "/model-qq\x08\x08b\n"));
        assert_eq!(screen.fleet.searched(), "model-b");
        assert_eq!(screen.fleet.shown().len(), 1);
        assert!(press(&mut screen, "/zz\x1b"));
        assert_eq!(screen.fleet.searched(), "model-b");
        assert!(screen.typing.is_none());
    }

    #[test]
    fn news_are_taken_in_their_order() {
        let (mut screen, news) = screen();
        let changed = |id| News::Changed(Box::new(session(id, Some(700), 9)));
        for one in [
            changed("gone"),
            News::All(vec![session("c", None, 1)]),
            News::Live,
            changed("d"),
        ] {
            news.try_send(one).unwrap();
        }
        assert!(screen.hear() && !screen.hear());
        let ids: String = screen.fleet.shown().map(|it| it.id.as_str()).collect();
        assert_eq!((&*ids, &screen.lost), ("dc", &None));
        news.try_send(News::Lost("it ended".into())).unwrap();
        screen.hear();
        assert_eq!(screen.lost.as_deref(), Some("it ended"));
    }
}
