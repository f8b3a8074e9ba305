//! Draws the list: a line of totals, a row and a gauge for each session, and the keys.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row, Table, TableState},
};

use super::fleet::{Fleet, Session};
use crate::{cli::table::grouped, health::Level};

/// Cells of a gauge, where there is room and where there is not.
const WIDE: u16 = 24;
const NARROW: u16 = 10;
/// Columns from which on gauges are wide, and ids whole.
const ROOMY: u16 = 104;
const WHOLE_IDS: u16 = 128;

/// What is drawn beside the sessions.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) address: &'a str,
    /// Why nothing comes any more; `None`: it is live.
    pub(super) lost: Option<&'a str>,
    /// A search is being typed.
    pub(super) typing: bool,
    pub(super) colour: bool,
    /// Seconds since 1970.
    pub(super) now_s: u64,
}

/// One picture. `state` keeps how far the list is scrolled.
pub(super) fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>, state: &mut TableState) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [title, totals, list, keys] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(heading(scene)), title);
    frame.render_widget(Paragraph::new(levels(scene)), totals);
    if scene.fleet.shown().len() == 0 {
        frame.render_widget(Paragraph::new(empty(scene)), list);
    } else {
        state.select(scene.fleet.chosen());
        table(frame, scene, list, state);
    }
    frame.render_widget(Paragraph::new(help(scene)), keys);
}

/// Rows for an output that nobody can scroll.
pub(super) fn rows(fleet: &Fleet, now_s: u64) -> Vec<[String; 8]> {
    let heading = [
        "session", "level", "tokens", "window", "full", "model", "course", "age",
    ];
    let row = |session: &Session| {
        [
            session.id.clone(),
            level(session).to_owned(),
            tokens(session.prompt_tokens),
            tokens(session.context_limit),
            percent(session),
            named(session),
            course(session),
            age(session, now_s),
        ]
    };
    let rows = fleet.shown().map(row);
    std::iter::once(heading.map(str::to_owned))
        .chain(rows)
        .collect()
}

fn heading<'a>(scene: &Scene<'a>) -> Line<'a> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let state = match scene.lost {
        None => Span::styled("live", coloured(scene, Color::Green)),
        Some(reason) => Span::styled(
            format!("reconnecting: {reason}"),
            coloured(scene, Color::Red),
        ),
    };
    Line::from(vec![
        Span::styled("plimsoll top ", bold),
        Span::raw(scene.address),
        Span::raw("  "),
        state,
    ])
}

fn levels(scene: &Scene<'_>) -> Line<'static> {
    let mut spans = vec![Span::raw(format!(
        "{} sessions",
        grouped(scene.fleet.count() as u64)
    ))];
    for level in [
        Level::Critical,
        Level::Caution,
        Level::Healthy,
        Level::Unknown,
    ] {
        let count = grouped(scene.fleet.of_level(level) as u64);
        spans.push(Span::raw("  "));
        spans.push(Span::styled(
            format!("{} {count}", level.word()),
            style(scene, level),
        ));
    }
    Line::from(spans)
}

fn empty(scene: &Scene<'_>) -> String {
    match scene.fleet.count() {
        0 => {
            "No session of this key yet: send a request through the proxy, and it is here.\nWhat a \
              client sends as its key (--key-env) sees the client's own sessions."
                .to_owned()
        }
        _ => format!("No session has {:?}.", scene.fleet.searched()),
    }
}

fn help(scene: &Scene<'_>) -> String {
    if scene.typing {
        return format!(
            "search: {}_   Enter keeps it, Esc ends it",
            scene.fleet.searched()
        );
    }
    let (sort, reversed) = scene.fleet.sorted();
    let order = match reversed {
        true => ", reversed",
        false => "",
    };
    let search = match scene.fleet.searched() {
        "" => String::new(),
        words => format!("   searched: {words}"),
    };
    format!(
        "q quit  ↑↓ move  s sort ({}{order})  r reverse  / search{search}",
        sort.word()
    )
}

fn table(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect, state: &mut TableState) {
    let gauge = if area.width >= ROOMY { WIDE } else { NARROW };
    let id = if area.width >= WHOLE_IDS { 32 } else { 8 };
    // Only what can be seen is made.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let shown = scene.fleet.shown().len();
    let offset = scrolled(state, shown, height);
    let columns = Column::of(area.width);
    let rows = scene.fleet.shown().skip(offset).take(height);
    let rows = rows.map(|session| {
        let cells = columns
            .iter()
            .map(|column| column.cell(scene, session, gauge));
        Row::new(cells.collect::<Vec<_>>())
    });
    let widths = columns.iter().map(|column| match column {
        Column::Session => Constraint::Length(id),
        Column::Level => Constraint::Length(8),
        Column::Load => Constraint::Length(gauge),
        Column::Tokens => Constraint::Length(21),
        Column::Full => Constraint::Length(5),
        Column::Model => Constraint::Min(12),
        Column::Course => Constraint::Length(14),
        Column::Age => Constraint::Length(5),
    });
    let widths: Vec<_> = widths.collect();
    let heading = columns.iter().map(Column::heading).collect::<Vec<_>>();
    let heading = Row::new(heading).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths)
        .header(heading)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut visible = TableState::new().with_selected(state.selected().map(|at| at - offset));
    frame.render_stateful_widget(table, area, &mut visible);
}

/// The first row that is seen, so that the chosen one is among them.
fn scrolled(state: &mut TableState, shown: usize, height: usize) -> usize {
    let last = shown.saturating_sub(height);
    let chosen = state.selected().unwrap_or(0);
    let least = (chosen + 1).saturating_sub(height);
    let offset = state.offset().clamp(least, chosen.max(least)).min(last);
    *state.offset_mut() = offset;
    offset
}

/// What is told of a session. Where there is no room for all of it some are left out: a number that is
/// cut would be another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Session,
    Level,
    Load,
    Tokens,
    Full,
    Model,
    Course,
    Age,
}

impl Column {
    /// Those for which so many cells are enough.
    const fn of(width: u16) -> &'static [Self] {
        use Column::{Age, Course, Full, Level, Load, Model, Session, Tokens};
        match width {
            90.. => &[Session, Level, Load, Tokens, Full, Model, Course, Age],
            70..90 => &[Session, Level, Tokens, Full, Model, Age],
            40..70 => &[Session, Level, Full, Model],
            _ => &[Level, Full],
        }
    }

    fn heading(&self) -> Line<'static> {
        match self {
            Self::Session => Line::from("session"),
            Self::Level => Line::from("level"),
            Self::Load => Line::from("load"),
            // As what stands beneath them.
            Self::Tokens => Line::from("tokens").right_aligned(),
            Self::Full => Line::from("full").right_aligned(),
            Self::Model => Line::from("model"),
            Self::Course => Line::from("course"),
            Self::Age => Line::from("age").right_aligned(),
        }
    }

    fn cell(&self, scene: &Scene<'_>, session: &Session, gauge: u16) -> Cell<'static> {
        let style = style(scene, session.health);
        match self {
            Self::Session => Cell::new(session.id.clone()),
            Self::Level => Cell::new(Span::styled(level(session), style)),
            Self::Load => Cell::new(Span::styled(load_line(session, gauge.into()), style)),
            Self::Tokens => {
                let (used, window) = (session.prompt_tokens, session.context_limit);
                let size = format!("{} / {}", tokens(used), tokens(window));
                Cell::new(Line::from(size).right_aligned())
            }
            Self::Full => Cell::new(Line::from(percent(session)).right_aligned()),
            Self::Model => Cell::new(named(session)),
            Self::Course => Cell::new(course(session)),
            Self::Age => Cell::new(Line::from(age(session, scene.now_s)).right_aligned()),
        }
    }
}

fn coloured(scene: &Scene<'_>, colour: Color) -> Style {
    match scene.colour {
        true => Style::new().fg(colour),
        false => Style::new(),
    }
}

fn style(scene: &Scene<'_>, level: Level) -> Style {
    coloured(
        scene,
        match level {
            Level::Healthy => Color::Green,
            Level::Caution => Color::Yellow,
            Level::Critical => Color::Red,
            Level::Unknown => Color::DarkGray,
        },
    )
}

/// The window as a bar, with the optimal and the critical mark where they lie.
fn load_line(session: &Session, cells: usize) -> String {
    let Some(window) = session.context_limit.filter(|window| *window > 0) else {
        return "·".repeat(cells);
    };
    let cell = |tokens: u32| {
        let share = f64::from(tokens) / f64::from(window);
        ((share * cells as f64).round() as usize).min(cells)
    };
    let filled = cell(session.prompt_tokens.unwrap_or(0));
    let last = cells.saturating_sub(1);
    let critical = session.critical_max_tokens.map(|it| cell(it).min(last));
    let optimal = session.optimal_max_tokens.map(|it| cell(it).min(last));
    (0..cells)
        .map(|at| match at {
            at if critical == Some(at) => '┃',
            at if optimal == Some(at) => '│',
            at if at < filled => '█',
            _ => '·',
        })
        .collect()
}

fn level(session: &Session) -> &'static str {
    session.health.word()
}

fn tokens(count: Option<u32>) -> String {
    count.map_or_else(|| "?".to_owned(), |count| grouped(count.into()))
}

fn percent(session: &Session) -> String {
    let share = session.hard_util;
    share.map_or_else(|| "?".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// SECURITY: a client may have named the model, and what a terminal obeys must not be in it.
fn named(session: &Session) -> String {
    let name = format!("{}/{}", session.provider, session.model);
    name.replace(char::is_control, "\u{fffd}")
}

fn course(session: &Session) -> String {
    if session.compacting {
        return "compacting…".to_owned();
    }
    match session.countdown {
        Some(left) => format!("{}, clear in {left}", session.course),
        None => session.course.to_string(),
    }
}

fn age(session: &Session, now_s: u64) -> String {
    match now_s.saturating_sub(session.updated_s) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
