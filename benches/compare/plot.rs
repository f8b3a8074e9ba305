//! Plots as SVG for light and dark pages: each has its own background and follows the reader's
//! scheme. Both axes are logarithmic, since the values span five orders of magnitude.

use std::fmt::Write as _;

/// A line, or a pair of bars: a name, and values along the x axis.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    /// Labelled marks of the x axis.
    pub(crate) marks: &'a [(f64, &'a str)],
    pub(crate) show: fn(f64) -> String,
    pub(crate) series: &'a [Series],
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 45.0;

/// Colours of each peer on a light and a dark page; Plimsoll's forms have one colour and thicker
/// lines.
const COLOURS: [(&str, &str, &str); 9] = [
    ("direct", "#6e7781", "#8b949e"),
    ("nginx", "#1a7f37", "#56d364"),
    ("haproxy", "#0f6e84", "#39c5cf"),
    ("plimsoll-off", "#5598e7", "#79b8ff"),
    ("plimsoll", "#0550ae", "#388bfd"),
    ("plimsoll-trim", "#033d8b", "#a5d6ff"),
    ("portkey", "#8250df", "#bc8cff"),
    ("headroom", "#bc4c00", "#f0883e"),
    ("litellm", "#a40e26", "#ff7b72"),
];

/// Lines over a logarithmic x axis.
pub(crate) fn lines(plot: &Plot<'_>) -> String {
    let shown: Vec<&Series> = plot
        .series
        .iter()
        .filter(|it| !it.points.is_empty())
        .collect();
    let xs = plot.marks.iter().map(|(x, _)| *x);
    let across = Scale::new(xs, LEFT + 15.0, WIDTH - RIGHT - 10.0, false);
    let values = shown
        .iter()
        .flat_map(|it| it.points.iter().map(|(_, y)| *y));
    let up = Scale::new(values, HEIGHT - BOTTOM, TOP, true);
    let mut out = start(plot.title);
    draw_rules(&mut out, &up, plot.show, false);
    for (x, name) in plot.marks {
        let at = across.place(*x);
        let y = HEIGHT - BOTTOM + 22.0;
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{name}</text>"
        );
    }
    let mut ends = Vec::new();
    for series in shown {
        let places = series.points.iter();
        let places: Vec<(f64, f64)> = places
            .map(|(x, y)| (across.place(*x), up.place(*y)))
            .collect();
        let path: Vec<String> = places
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let class = class(series.name);
        let _ = writeln!(
            out,
            "<polyline class=\"line {class}\" points=\"{}\"/>",
            path.join(" ")
        );
        for (x, y) in &places {
            let _ = writeln!(
                out,
                "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
            );
        }
        if let Some(&(x, y)) = places.last() {
            ends.push((y, x, series.name));
        }
    }
    for (y, (was, x, name)) in spread_labels(ends) {
        let (class, start) = (class(name), WIDTH - RIGHT + 12.0);
        let _ = writeln!(
            out,
            "<line class=\"lead\" x1=\"{:.1}\" y1=\"{was:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"name {class}\" x=\"{start}\" y=\"{:.1}\">{name}</text>",
            x + 5.0,
            start - 3.0,
            y + 4.0
        );
    }
    out + "</svg>\n"
}

/// Two bars for each name: the lower is its first value, the whole its last.
pub(crate) fn bars(plot: &Plot<'_>) -> String {
    let shown: Vec<&Series> = plot
        .series
        .iter()
        .filter(|it| !it.points.is_empty())
        .collect();
    let values = shown
        .iter()
        .flat_map(|it| it.points.iter().map(|(_, y)| *y));
    let across = Scale::new(values, LEFT + 40.0, WIDTH - 90.0, true);
    let step = (HEIGHT - TOP - BOTTOM) / shown.len().max(1) as f64;
    let mut out = start(plot.title);
    draw_rules(&mut out, &across, plot.show, true);
    for (row, series) in shown.iter().enumerate() {
        let (top, class) = (step.mul_add(row as f64, TOP), class(series.name));
        let _ = writeln!(
            out,
            "<text class=\"name {class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT + 32.0,
            top + step / 2.0 + 4.0,
            series.name
        );
        let height = (step * 0.36).min(16.0);
        for (mark, value) in &series.points {
            let y = mark.mul_add(height + 1.0, top + step / 2.0 - height);
            let (x, end) = (LEFT + 40.0, across.place(*value));
            let pale = if *mark == 0.0 { " pale" } else { "" };
            let _ = writeln!(
                out,
                "<rect class=\"bar {class}{pale}\" x=\"{x}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>\
                 <text class=\"small\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                (end - x).max(1.0),
                end + 5.0,
                y + height - 2.5,
                (plot.show)(*value)
            );
        }
    }
    let names: Vec<&str> = plot.marks.iter().map(|(_, name)| *name).collect();
    let _ = writeln!(
        out,
        "<text class=\"small\" x=\"{}\" y=\"{}\" text-anchor=\"end\">of two bars: above {}</text>",
        WIDTH - 20.0,
        30,
        names.join(", below ")
    );
    out + "</svg>\n"
}

/// A logarithmic scale from values to positions.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// `whole`: from one power of ten to another.
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64, whole: bool) -> Self {
        let logs = values.filter(|it| *it > 0.0).map(f64::log10);
        let (mut low, mut high) = logs.fold((f64::MAX, f64::MIN), |(low, high), it| {
            (low.min(it), high.max(it))
        });
        if whole {
            // A value at the lower end of the scale would be a bar without length.
            (low, high) = ((low - 0.02).floor(), (high + 0.02).ceil());
        }
        Self {
            low,
            high,
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.log10() - self.low) / (self.high - self.low).max(f64::MIN_POSITIVE);
        share.mul_add(self.to - self.from, self.from)
    }
}

/// A grid line at each power of ten.
fn draw_rules(out: &mut String, scale: &Scale, show: fn(f64) -> String, upright: bool) {
    let mut power = scale.low;
    while power <= scale.high {
        let value = 10_f64.powf(power);
        let (at, name) = (scale.place(value), show(value));
        let _ = if upright {
            writeln!(
                out,
                "<line class=\"rule\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{}\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 20.0
            )
        } else {
            writeln!(
                out,
                "<line class=\"rule\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0
            )
        };
        power += 1.0;
    }
}

/// Spreads labels so that they do not overlap, as close to their lines as possible.
fn spread_labels(mut ends: Vec<(f64, f64, &str)>) -> Vec<(f64, (f64, f64, &str))> {
    const LINE: f64 = 17.0;
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut places: Vec<f64> = Vec::new();
    for (y, ..) in &ends {
        let free = places.last().map_or(TOP, |last| last + LINE);
        places.push(y.max(free));
    }
    let mut below = HEIGHT - BOTTOM;
    for place in places.iter_mut().rev() {
        *place = place.min(below);
        below = *place - LINE;
    }
    places.into_iter().zip(ends).collect()
}

fn class(name: &str) -> String {
    format!("p-{name}")
}

fn start(title: &str) -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for (name, on_light, on_dark) in COLOURS {
        let class = class(name);
        let _ = write!(light, ".{class}{{--c:{on_light}}}");
        let _ = write!(dark, ".{class}{{--c:{on_dark}}}");
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">
<title>{title}</title>
<style>
svg{{--page:#fff;--text:#1f2328;--rule:#d1d9e0;font:12px system-ui,-apple-system,\"Segoe UI\",Helvetica,Arial,sans-serif}}
{light}
text{{fill:var(--text)}}
.title{{font-size:15px;font-weight:600}}
.name{{fill:var(--c);font-weight:600}}
.small{{font-size:11px}}
.rule,.lead{{stroke:var(--rule)}}
.line{{fill:none;stroke:var(--c);stroke-width:1.6}}
.dot,.bar{{fill:var(--c)}}
.pale{{opacity:.55}}
.line.p-plimsoll{{stroke-width:3.2}}
@media (prefers-color-scheme:dark){{svg{{--page:#0d1117;--text:#e6edf3;--rule:#3d444d}}{dark}}}
</style>
<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" style=\"fill:var(--page)\"/>
<text class=\"title\" x=\"20\" y=\"30\">{title}</text>
"
    )
}
