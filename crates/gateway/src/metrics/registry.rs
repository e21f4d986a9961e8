//! Counters, gauges, histograms and labelled families with the Prometheus text form.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A number that only grows; clones count into the same cell.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Reads the count.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls; clones share the same cell.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Reads the value.
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one until the returned guard is dropped.
    pub fn hold(&self) -> GaugeHold {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeHold(self.clone())
    }
}

/// One unit of a [`Gauge`], given back on drop.
#[derive(Debug)]
pub struct GaugeHold(Gauge);

impl Drop for GaugeHold {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Durations counted into fixed buckets; clones share the same cells.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Arc<HistogramCells>);

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket =
            BUCKETS_MICROS.iter().position(|bound| nanos <= bound * NANOS_PER_MICRO).unwrap_or(BUCKETS_MICROS.len());
        self.0.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Reads how many durations were counted.
    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}

#[derive(Debug, Default)]
struct HistogramCells {
    buckets: [AtomicU64; BUCKETS_MICROS.len() + 1],
    sum_nanos: AtomicU64,
}

/// All series of one metric name, told apart by label values.
///
/// Looking a series up takes a lock and a map walk: keep the returned handle where the
/// metric is used often.
#[derive(Debug)]
pub struct Family<M> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    series: Mutex<BTreeMap<Vec<String>, M>>,
}

impl<M: Metric> Family<M> {
    /// Makes an empty family; `labels` names what tells its series apart.
    pub fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { name, help, labels, series: Mutex::new(BTreeMap::new()) }
    }

    /// Returns the series with these label values, made on first use.
    ///
    /// Once the family holds [`SERIES_MAX`] series, new label values all share one series
    /// labelled `other`.
    pub fn with(&self, values: &[&str]) -> M {
        debug_assert_eq!(values.len(), self.labels.len());
        let mut series = self.lock();
        let mut key: Vec<String> = values.iter().map(ToString::to_string).collect();
        if series.len() >= SERIES_MAX && !series.contains_key(&key) {
            key.fill("other".to_owned());
        }
        series.entry(key).or_default().clone()
    }

    /// Appends the family in Prometheus text form; an empty family appends nothing.
    pub fn render(&self, out: &mut String) {
        let series = self.lock();
        if series.is_empty() {
            return;
        }
        let (name, help) = (self.name, self.help);
        push(out, format_args!("# HELP {name} {help}\n"));
        push(out, format_args!("# TYPE {name} {}\n", M::KIND));
        for (values, metric) in series.iter() {
            let mut labels = String::new();
            for (label, value) in self.labels.iter().zip(values) {
                let comma = if labels.is_empty() { "" } else { "," };
                let value = escape(value);
                push(&mut labels, format_args!("{comma}{label}=\"{value}\""));
            }
            metric.render(name, &labels, out);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<String>, M>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A family whatever it holds.
pub(super) trait AnyFamily {
    /// Tells name, type, labels and help.
    #[cfg(test)]
    fn describe(&self) -> (&'static str, &'static str, &'static [&'static str], &'static str);

    /// Appends the family in Prometheus text form.
    fn render(&self, out: &mut String);
}

impl<M: Metric> AnyFamily for Family<M> {
    #[cfg(test)]
    fn describe(&self) -> (&'static str, &'static str, &'static [&'static str], &'static str) {
        (self.name, M::KIND, self.labels, self.help)
    }

    fn render(&self, out: &mut String) {
        Self::render(self, out);
    }
}

/// What a [`Family`] can hold.
pub trait Metric: Clone + Default {
    /// The type name in the Prometheus text form.
    const KIND: &'static str;

    /// Appends this series; `labels` are written out already, without braces.
    fn render(&self, name: &str, labels: &str, out: &mut String);
}

impl Metric for Counter {
    const KIND: &'static str = "counter";

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        line(out, name, "", labels, self.value());
    }
}

impl Metric for Gauge {
    const KIND: &'static str = "gauge";

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        line(out, name, "", labels, self.value());
    }
}

impl Metric for Histogram {
    const KIND: &'static str = "histogram";

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        for (index, bucket) in self.0.buckets.iter().enumerate() {
            total += bucket.load(Ordering::Relaxed);
            let bound = BUCKETS_MICROS
                .get(index)
                .map_or_else(|| "+Inf".to_owned(), |micros| Duration::from_micros(*micros).as_secs_f64().to_string());
            let labels = format!("{labels}{comma}le=\"{bound}\"");
            line(out, name, "_bucket", &labels, total);
        }
        let sum = Duration::from_nanos(self.0.sum_nanos.load(Ordering::Relaxed)).as_secs_f64();
        line(out, name, "_sum", labels, sum);
        line(out, name, "_count", labels, total);
    }
}

fn line(out: &mut String, name: &str, suffix: &str, labels: &str, value: impl std::fmt::Display) {
    if labels.is_empty() {
        push(out, format_args!("{name}{suffix} {value}\n"));
    } else {
        push(out, format_args!("{name}{suffix}{{{labels}}} {value}\n"));
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes any text");
}

/// Escapes a label value: Prometheus text format 0.0.4, "Comments, help text, and type
/// information".
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Series one family may hold; series; keeps a reload loop or a hostile label from growing
/// memory without end. Prometheus' own advice is fewer than 10 label values for most metrics
/// ("Instrumentation: do not overuse labels"); routes are the one label that may be many.
pub const SERIES_MAX: usize = 8192;

/// Upper bounds of the duration buckets, µs: a 1-2.5-5 ladder from 100 µs (below one
/// loopback exchange) to 60 s (the longest default time-out of a route).
const BUCKETS_MICROS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

const NANOS_PER_MICRO: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_family_renders_help_type_and_escaped_labels() {
        let family: Family<Counter> = Family::new("x_total", "Things.", &["kind"]);
        family.with(&["a\"b\\c\n"]).add(3);
        let mut out = String::new();
        family.render(&mut out);
        assert_eq!(out, "# HELP x_total Things.\n# TYPE x_total counter\nx_total{kind=\"a\\\"b\\\\c\\n\"} 3\n");
    }

    #[test]
    fn a_family_shares_one_series_past_its_maximum() {
        let family: Family<Counter> = Family::new("x_total", "Things.", &["kind"]);
        for index in 0..SERIES_MAX {
            family.with(&[&index.to_string()]).inc();
        }
        family.with(&["one more"]).inc();
        family.with(&["and another"]).inc();
        family.with(&["0"]).inc();
        assert_eq!(family.with(&["whatever"]).value(), 2);
        assert_eq!(family.with(&["0"]).value(), 2);
    }

    #[test]
    fn a_histogram_renders_cumulative_buckets_sum_and_count() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_micros(100));
        histogram.observe(Duration::from_millis(400));
        histogram.observe(Duration::from_secs(100));
        let mut out = String::new();
        histogram.render("h_seconds", "route=\"r\"", &mut out);
        assert!(out.starts_with("h_seconds_bucket{route=\"r\",le=\"0.0001\"} 1\n"), "{out}");
        assert!(out.contains("h_seconds_bucket{route=\"r\",le=\"0.5\"} 2\n"), "{out}");
        assert!(out.contains("h_seconds_bucket{route=\"r\",le=\"+Inf\"} 3\n"), "{out}");
        assert!(out.contains("h_seconds_sum{route=\"r\"} 100.4001\n"), "{out}");
        assert!(out.ends_with("h_seconds_count{route=\"r\"} 3\n"), "{out}");
    }

    #[test]
    fn a_gauge_gives_back_what_a_dropped_guard_held() {
        let gauge = Gauge::default();
        let first = gauge.hold();
        let second = gauge.hold();
        assert_eq!(gauge.value(), 2);
        drop(first);
        drop(second);
        assert_eq!(gauge.value(), 0);
    }
}
