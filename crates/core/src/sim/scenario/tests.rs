use super::*;
use crate::sim::{
    link::{Capacity, Direction, GilbertElliott, Outage},
    trace::{Radio, Traces},
};

const HEAD: &str = "summary = \"s\"\nbasis = \"b\"\nsource = \"o\"\n";

/// Parses lines that follow a valid head of three lines.
fn parse(lines: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("test", &format!("{HEAD}{lines}"), None)
}

fn valid(lines: &str) -> Scenario {
    parse(&format!("{lines}\n[access.cell]\nrtt_ms = 60\n")).unwrap()
}

/// Gives the message for lines that end with a valid access link.
fn refused(lines: &str) -> String {
    parse(&format!("{lines}\n[access.cell]\nrtt_ms = 60\n")).unwrap_err().to_string()
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_link_is_the_same_both_ways_but_for_what_a_direction_says() {
    let scenario = parse(
        r#"[access.wifi]
rtt_ms = 20
jitter_ms = 4
rate_kbit = 50_000
queue_kb = 64
loss = 0.01
down = { trace = "walk", burst = { to_bad = 0.02, to_good = 0.25, loss_bad = 0.8 } }
up = { rate_kbit = 20_000, loss = 0, delay_ms = 15 }
[access.cell]
rtt_ms = 80
up = { trace_file = "x.up" }
"#,
    )
    .unwrap();
    assert_eq!(scenario.access.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["wifi", "cell"]);
    let Shapes { down, up } = &scenario.access[0].shapes;
    assert_eq!((&down.pace, down.queue_bytes), (&Pace::Synthetic(Radio::Walk), 64_000));
    assert_eq!(
        (down.impairments.delay, down.impairments.jitter),
        (Duration::from_millis(10), Duration::from_millis(2))
    );
    let burst = GilbertElliott { to_bad: 0.02, to_good: 0.25, loss_good: 0.0, loss_bad: 0.8 };
    assert_eq!((down.impairments.loss, down.impairments.burst), (0.01, Some(burst)));
    assert_eq!((&up.pace, up.impairments.loss), (&Pace::Rate { bits_per_s: 20_000_000 }, 0.0));
    assert_eq!(up.impairments.delay, Duration::from_millis(15));
    assert_eq!(scenario.access[1].shapes.up.pace, Pace::Recorded { file: "x.up".to_owned() });
    assert_eq!(scenario.access[1].shapes.down.pace, Pace::Unlimited);
}

#[test]
fn what_is_not_said_has_its_default() {
    let scenario = valid("");
    assert_eq!(scenario.duration, seconds(60));
    assert_eq!(scenario.starts.iter().map(Duration::as_millis).collect::<Vec<_>>(), [500, 2_000, 3_500, 5_000]);
    assert_eq!(scenario.sites, [Site { name: "a".to_owned(), v4: 2, v6: 0, extra_rtt: Duration::ZERO }]);
    assert_eq!((scenario.variant, scenario.scaled), (None, None));
    assert_eq!(valid("work = { starts_s = [1] }").starts, [seconds(1)]);
}

#[test]
fn a_variant_is_merged_table_by_table_and_replaces_lists() {
    let text = format!(
        "{HEAD}{}",
        r#"
[access.cell]
rtt_ms = 60
down = { rate_kbit = 780, loss = 0.5 }
[[event]]
at_s = 3
outage = "drop"
[variant.short]
summary = "shorter"
scaled = 6
access.cell.down.loss = 0.25
event = [{ at_s = 1, outage = "hold" }]
"#
    );
    assert_eq!(Scenario::variants("test", &text).unwrap(), ["short"]);
    let short = Scenario::parse("test", &text, Some("short")).unwrap();
    assert_eq!((short.summary.as_str(), short.basis.as_str(), short.scaled), ("shorter", "b", Some(6)));
    let down = &short.access[0].shapes.down;
    assert_eq!((&down.pace, down.impairments.loss), (&Pace::Rate { bits_per_s: 780_000 }, 0.25));
    assert_eq!(short.events[0].kind, EventKind::Outage(Outage::Hold));
    let error = Scenario::parse("test", &text, Some("shrot")).unwrap_err().to_string();
    assert_eq!(error, "test.toml:1: there is no variant `shrot`; did you mean `short`?");
}

#[test]
fn every_kind_of_fault_reads() {
    let scenario = valid(
        r#"
site = [{ name = "a", v4 = 5, v6 = 1 }, { name = "b", extra_rtt_ms = 8 }]
fault = [
    { kind = "address", how = "drop", address = 4 },
    { kind = "address", how = "lossy", share = 0.4, site = "b" },
    { kind = "address", how = "slow-syn", delay_s = 3, family = "v6", address = 0 },
    { kind = "balancer", how = "hang", address = 0 },
    { kind = "dns", how = "hijack", share = 0.07 },
    { kind = "island", site = "b" },
    { kind = "middlebox", how = "no-chunked" },
    { kind = "mtu", bytes = 1280, family = "v6" },
    { kind = "nat", tcp_idle_s = 300, at_expiry = "reset" },
    { kind = "portal", link = "cell", for_s = 5 },
    { kind = "ports", allow = [80, 443] },
    { kind = "tamper" },
    { kind = "tls", how = "swallow", at_s = 2 },
    { kind = "udp", how = "police", rate_kbit = 100 },
    { kind = "v6", how = "lose-syn", share = 0.07 },
]"#,
    );
    let kinds: Vec<&FaultKind> = scenario.faults.iter().map(|fault| &fault.kind).collect();
    let target = |site, family, address| Target { site, family, address };
    assert_eq!(kinds[0], &FaultKind::Address { target: target(0, Some(Family::V4), Some(4)), how: AddressFault::Drop });
    let lossy = AddressFault::Lossy { share: 0.4 };
    assert_eq!(kinds[1], &FaultKind::Address { target: target(1, None, None), how: lossy });
    let slow = AddressFault::SlowSyn { delay: seconds(3) };
    assert_eq!(kinds[2], &FaultKind::Address { target: target(0, Some(Family::V6), Some(0)), how: slow });
    assert_eq!(kinds[5], &FaultKind::Island { site: Some(1) });
    assert_eq!(kinds[9], &FaultKind::Portal);
    assert_eq!(scenario.faults[9].link, Some(0));
    assert_eq!(kinds[13], &FaultKind::Udp { how: UdpFault::Police { bits_per_s: 100_000 } });
    assert!(target(1, None, None).covers(1, Family::V6, 0) && !target(1, None, None).covers(0, Family::V4, 0));
}

#[test]
fn every_mistake_is_told_with_its_line_and_its_remedy() {
    for (lines, message) in [
        ("durtion_s = 5", "test.toml:4: unknown key `durtion_s` in the file; did you mean `duration_s`?"),
        ("duration_s = 0", "test.toml:4: `duration_s` must be a number from 0.1 to 3600, not 0"),
        ("duration_s = nan", "test.toml:4: `duration_s` must be a number from 0.1 to 3600, not nan"),
        ("duration_s = \"5\"", "test.toml:4: `duration_s` must be a number from 0.1 to 3600, not \"5\""),
        ("work = 5", "test.toml:4: `work` must be a table, not 5"),
        ("work.starts_s = [-1]", "test.toml:4: `starts_s` must be a list of 1 to 32 numbers from 0 to 3600, not [-1]"),
        ("event = [{ outage = \"dorp\" }]", "test.toml:4: `outage` must be one of \"drop\", \"hold\", not \"dorp\""),
        (
            "\nevent = [{ at_s = 1 }]",
            "test.toml:5: `event 1` needs exactly one of `address`, `interface`, `nat`, `outage`, and has none",
        ),
        (
            "event = [{ at_s = 60, rtt_ms = 1 }]",
            "test.toml:4: `at_s` must be less than `duration_s`, which is 60, not 60",
        ),
        (
            "event = [{ at_s = 50, for_s = 20, rtt_ms = 1 }]",
            "test.toml:4: `for_s` must be a number from 0.001 to 10, not 20",
        ),
        ("event = [{ link = \"wifi\", rtt_ms = 1 }]", "test.toml:4: there is no access link `wifi`; known here: cell"),
        ("fault = [{}]", "test.toml:4: `kind` is missing in `fault 1`"),
        (
            "fault = [{ kind = \"dsn\", how = \"drop\" }]",
            "test.toml:4: there is no kind of fault `dsn`; did you mean `dns`?",
        ),
        (
            "fault = [{ kind = \"dns\", how = \"drop\", address = 1 }]",
            "test.toml:4: unknown key `address` in `fault 1`; known here: kind, link, at_s, for_s, every_s, how, share",
        ),
        (
            "fault = [{ kind = \"address\", how = \"drop\", address = 2 }]",
            "test.toml:4: `address` must be a whole number from 0 to 1, not 2",
        ),
        (
            "fault = [{ kind = \"address\", how = \"drop\", share = 0.5 }]",
            "test.toml:4: `share` must be left out with this `how`, not 0.5",
        ),
        ("fault = [{ kind = \"portal\" }]", "test.toml:4: `link` is missing in `fault 1`"),
        ("site = [{ name = \"a\", v4 = 0 }]", "test.toml:4: `v4` must be at least 1 where `v6` is 0, not 0"),
        ("access.cell.burst.to_bad = 1.5", "test.toml:5: duplicate key"),
        (
            "site = [{ name = \"A\" }]",
            "test.toml:4: `name` must be one of its own, of up to 8 small letters and digits, not \"A\"",
        ),
    ] {
        assert_eq!(refused(lines), message, "{lines}");
    }
    for (lines, message) in [
        ("", "test.toml:1: `access` is missing in the file"),
        ("[access.cell]\n", "test.toml:4: `rtt_ms` is missing in `access.cell`"),
        ("[access.cel]\nrtt_ms = 1", "test.toml:4: there is no access link `cel`; did you mean `cell`?"),
        (
            "[access.cell]\nrtt_ms = 1\ndown = { rate_kbit = 1, trace = \"walk\" }",
            "test.toml:6: `access.cell.down` needs exactly one of `rate_kbit`, `trace`, `trace_file`, and has rate_kbit, trace",
        ),
        (
            "[access.cell]\nrtt_ms = 1\ntrace = \"wlak\"",
            "test.toml:6: `trace` must be one of drive, elevator, subway, train, walk, not \"wlak\"",
        ),
        (
            "[access.cell]\nrtt_ms = 1\nup.burst = { to_bad = 1.5, to_good = 0 }",
            "test.toml:6: `to_bad` must be a number from 0 to 1, not 1.5",
        ),
    ] {
        assert_eq!(parse(lines).unwrap_err().to_string(), message, "{lines}");
    }
    let error = Scenario::parse("test", "summary = \"s\"\nbasis = ", None).unwrap_err().to_string();
    assert!(error.starts_with("test.toml:2: "), "{error}");
}

#[test]
fn the_timeline_undoes_what_ends_and_repeats_after_the_duration() {
    let scenario = valid(
        r#"
duration_s = 10
event = [
    { at_s = 2, for_s = 3, outage = "drop" },
    { at_s = 4, for_s = 4, outage = "hold" },
    { at_s = 7, nat = "rebind" },
    { at_s = 9, rtt_ms = 200 },
]
fault = [{ kind = "tamper" }]"#,
    );
    let steps: Vec<(u64, Action)> = scenario.timeline().map(|step| (step.at.as_secs(), step.action)).take(12).collect();
    let outage = |outage| Action::Outage { link: 0, outage };
    let shape = |delay_ms| {
        let mut shapes = scenario.access[0].shapes.clone();
        shapes.down.impairments.delay = Duration::from_millis(delay_ms);
        shapes.up.impairments.delay = Duration::from_millis(delay_ms);
        Action::Shape { link: 0, shapes: Box::new(shapes) }
    };
    let expected = [
        (0, Action::Fault { fault: 0, is_on: true }),
        (2, outage(Some(Outage::Drop))),
        (4, outage(Some(Outage::Hold))),
        (7, Action::NatRebind { link: 0 }),
        (8, outage(None)),
        (9, shape(100)),
        (10, shape(30)),
        (12, outage(Some(Outage::Drop))),
        (14, outage(Some(Outage::Hold))),
        (17, Action::NatRebind { link: 0 }),
        (18, outage(None)),
        (19, shape(100)),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn what_happens_every_so_often_does_so_until_the_period_ends() {
    let scenario = valid("duration_s = 10\nevent = [{ at_s = 1, for_s = 0.5, every_s = 4, outage = \"hold\" }]");
    let outages: Vec<_> = scenario.outages().map(|(start, end)| (start.as_millis(), end.as_millis())).collect();
    assert_eq!(outages, [(1_000, 1_500), (5_000, 5_500), (9_000, 9_500)]);
    let at: Vec<_> = scenario.timeline().take(7).map(|step| step.at.as_millis()).collect();
    assert_eq!(at, [1_000, 1_500, 5_000, 5_500, 9_000, 9_500, 11_000]);
}

#[test]
fn shapes_become_links_once_their_traces_are_there() {
    let lines =
        "[access.cell]\nrtt_ms = 60\ndown.trace = \"walk\"\nup.trace_file = \"x.up\"\n[[event]]\ntrace_file = \"y\"\n";
    let scenario = parse(lines).unwrap();
    assert_eq!(scenario.recorded_traces().into_iter().collect::<Vec<_>>(), ["x.up", "y"]);
    let Shapes { down, up } = &scenario.access[0].shapes;
    let mut traces = Traces::new(1);
    let spec = down.spec(Direction::Down, &mut traces).unwrap();
    assert_eq!(spec, down.spec(Direction::Down, &mut traces).unwrap());
    assert_eq!(spec.capacity, Capacity::Trace(Radio::Walk.trace(Direction::Down, 1).into()));
    let missing = up.spec(Direction::Up, &mut traces).unwrap_err();
    assert_eq!(missing.to_string(), "the recorded trace x.up is not there");
    traces.add_recorded("x.up", "5".parse().unwrap());
    assert!(matches!(up.spec(Direction::Up, &mut traces).unwrap().capacity, Capacity::Trace(_)));
}

#[test]
fn a_timeline_without_change_ends() {
    assert_eq!(valid("").timeline().next(), None);
    let broken = valid("fault = [{ kind = \"tamper\" }]");
    assert_eq!(broken.timeline().count(), 1);
}
