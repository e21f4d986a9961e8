//! The results as charts: for each work, the 95th percentile of every peer in every scenario.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{Record, table::works};

/// Draws a chart for each work: names of files, and what is in them.
pub(super) fn all(records: &[Record]) -> Vec<(String, String)> {
    let chart = |work: String| {
        let records: Vec<_> = records.iter().filter(|record| record.work == work).collect();
        (file(&work), draw(&work, &records))
    };
    works(records).into_iter().map(chart).collect()
}

/// Gives the name of the chart of a work.
pub(super) fn file(work: &str) -> String {
    format!("{work}.svg")
}

fn draw(work: &str, records: &[&Record]) -> String {
    let peers: Vec<&str> = BTreeSet::from_iter(records.iter().map(|record| record.peer.as_str())).into_iter().collect();
    let networks: Vec<String> =
        BTreeSet::from_iter(records.iter().map(|record| record.network())).into_iter().collect();
    let band = LANE * (peers.len() + 1) as f64;
    let bottom = TOP + band * networks.len() as f64;
    let mut svg = Svg::new(RIGHT + MARGIN, bottom + MARGIN + 20.0);
    svg.text(MARGIN, 20.0, "start", &format!("{work}: 95th percentile of the time to success, s (log scale)"));
    let mut x = MARGIN;
    for (number, peer) in peers.iter().enumerate() {
        svg.dot(x + 4.0, 40.0, colour(number, peer), true);
        svg.text(x + 12.0, 44.0, "start", peer);
        x += 36.0 + LETTER * peer.len() as f64;
    }
    for mark_ms in MARKS_MS {
        let x = place(mark_ms);
        svg.line((x, TOP), (x, bottom), "#ddd", 1.0);
        svg.text(x, bottom + 16.0, "middle", &(mark_ms / 1000.0).to_string());
    }
    for (row, network) in networks.iter().enumerate() {
        let top = TOP + band * row as f64;
        svg.line((MARGIN, top), (RIGHT, top), "#eee", 1.0);
        svg.text(LEFT - 10.0, top + band / 2.0 + 4.0, "end", network);
        for (lane, peer) in peers.iter().enumerate() {
            let Some(record) = records.iter().find(|record| record.network() == *network && record.peer == *peer)
            else {
                continue;
            };
            let y = top + LANE * (lane as f64 + 1.0);
            point(&mut svg, record, y, colour(lane, peer));
        }
    }
    svg.end()
}

fn point(svg: &mut Svg, record: &Record, y: f64, colour: &str) {
    if record.void {
        return svg.text(RIGHT - 4.0, y + 3.0, "end", "void");
    }
    let Some(p95) = record.p95_ms else { return };
    if let (Some(low), Some(high)) = (record.p95_low_ms, record.p95_high_ms) {
        svg.line((place(low), y), (place(high), y), colour, 2.0);
    }
    svg.dot(place(p95), y, colour, record.success_share == Some(1.0));
}

/// Gives where a time lies.
fn place(ms: f64) -> f64 {
    let [first, .., last] = MARKS_MS;
    LEFT + (RIGHT - LEFT) * (ms.clamp(first, last) / first).ln() / (last / first).ln()
}

/// Ropeway is black; the others take their turn.
fn colour(number: usize, peer: &str) -> &'static str {
    if peer == "ropeway" { "#000" } else { COLOURS[number % COLOURS.len()] }
}

/// A drawing.
struct Svg(String);

impl Svg {
    fn new(width: f64, height: f64) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        ))
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str, width: f64) {
        self.put(format_args!(
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>\n"
        ));
    }

    fn dot(&mut self, x: f64, y: f64, colour: &str, is_full: bool) {
        let fill = if is_full { colour } else { "#fff" };
        self.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{fill}\" stroke=\"{colour}\"/>\n"));
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"));
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        self.0.write_fmt(element).expect("a string takes what is written");
    }
}

/// Left and right end of the scale, its top, and the space around, in units of the drawing.
const LEFT: f64 = 180.0;
const RIGHT: f64 = 980.0;
const TOP: f64 = 60.0;
const MARGIN: f64 = 16.0;

/// Width of a letter of the legend, generously.
const LETTER: f64 = 7.5;

/// Height of one peer's lane in the band of a scenario.
const LANE: f64 = 9.0;

/// Times that the scale marks; it ends at the deadline.
const MARKS_MS: [f64; 7] = [30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0];

/// Colours that colour-blind people can tell apart (Okabe and Ito, 2008), but for the black, and two more.
const COLOURS: [&str; 9] =
    ["#e69f00", "#56b4e9", "#009e73", "#b8a800", "#0072b2", "#d55e00", "#cc79a7", "#777777", "#882255"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_goes_from_end_to_end_and_no_further() {
        assert_eq!((place(30.0), place(30_000.0), place(90_000.0)), (LEFT, RIGHT, RIGHT));
        assert!(place(1_000.0) > place(300.0));
    }
}
