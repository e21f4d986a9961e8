//! Labs come and go and leave nothing behind.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::support::{labs, ropeway_lab, start, text};

/// Lists what bears the number of a lab.
fn traces_of(lab: u8) -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["/run/netns", "/etc/netns"] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.extend(names.filter(|name| name.starts_with(&format!("rwlab{lab}-"))));
    }
    found.extend(Path::new(&format!("/run/ropeway-lab/{lab}")).exists().then(|| "its folder".to_owned()));
    found
}

/// Starts a lab in which a program tells that it runs and then waits; gives the lab's number.
fn waiting_lab() -> (Child, u8) {
    let script = "echo running in $(ip netns identify); exec sleep 600";
    let mut command = ropeway_lab(&["run", "wifi-good", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command can be started");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it was asked to be a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("the program runs");
    let number = line.trim().strip_prefix("running in rwlab").and_then(|rest| rest.chars().next()?.to_digit(10));
    (child, number.unwrap_or_else(|| panic!("no lab: {line}")) as u8)
}

/// Says whether the command line of some process has these words.
fn has_process_with(words: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    let command_lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    command_lines.map(|line| text(&line)).any(|line| line.contains(words))
}

fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill can be started");
    assert!(status.success());
}

#[test]
fn the_next_start_removes_what_a_killed_lab_left() {
    let Some(_labs) = labs() else { return };
    let (mut child, number) = waiting_lab();
    signal(&child, "-KILL");
    child.wait().expect("it was started here");
    assert!(!traces_of(number).is_empty(), "a process that is killed removes nothing");

    drop(start("wifi-good"));

    assert_eq!(traces_of(number), Vec::<String>::new());
    assert!(!has_process_with(&format!("/run/ropeway-lab/{number}/")), "a name server outlived its lab");
}

#[test]
fn a_lab_that_is_asked_to_end_leaves_nothing() {
    let Some(_labs) = labs() else { return };
    for asked in ["-TERM", "-INT", "-HUP"] {
        let (mut child, number) = waiting_lab();
        signal(&child, asked);
        let status = child.wait().expect("it was started here");
        assert_eq!(status.code(), Some(128 + 15), "the program was asked to end after {asked}");
        assert_eq!(traces_of(number), Vec::<String>::new(), "{asked}");
    }
}

#[test]
fn four_labs_run_side_by_side_and_a_fifth_is_told_so() {
    let Some(_labs) = labs() else { return };
    let running: Vec<_> = (0..4).map(|_| thread::spawn(|| start("wifi-good"))).collect();
    let running: Vec<_> = running.into_iter().map(|thread| thread.join().expect("a lab starts")).collect();
    let mut numbers: Vec<u8> = running.iter().map(|lab| lab.number()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3]);

    let fifth = ropeway_lab(&["run", "wifi-good", "--", "true"]).output().expect("the command can be started");
    assert_eq!(text(&fifth.stderr), "ropeway-lab: 4 labs are running, which is the most; wait for one to end\n");
    let begun = Instant::now();
    let answers = thread::scope(|scope| {
        let ask = |lab| {
            let output = crate::support::curl(lab, &["-m", "10", "https://api.test/bytes/3"]);
            text(&output.stdout) + &text(&output.stderr)
        };
        let asking: Vec<_> = running.iter().map(|lab| scope.spawn(move || ask(lab))).collect();
        asking.into_iter().map(|thread| thread.join().expect("curl runs")).collect::<Vec<_>>()
    });
    assert_eq!(answers, ["xxx"; 4]);
    assert!(begun.elapsed() < Duration::from_secs(8), "four good networks took {:?}", begun.elapsed());
}

#[test]
fn a_running_lab_is_changed_from_outside() {
    let Some(_labs) = labs() else { return };
    let lab = start("lte-walk");
    lab.begin().expect("the scenario begins");
    let number = lab.number().to_string();
    let set = |changes: &[&str]| {
        let output = ropeway_lab(&[&["set", "--lab", &number], changes].concat()).output().expect("it can be started");
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };

    assert_eq!(set(&["outage=drop"]), (Some(0), "cell: outage, packets are dropped\n".to_owned()));
    assert_eq!(crate::support::curl(&lab, &["-m", "1", "http://198.18.0.10/"]).status.code(), Some(28));
    assert_eq!(set(&["outage=off", "cell.rtt_ms=400"]).0, Some(0));
    let begun = Instant::now();
    assert_eq!(crate::support::curl(&lab, &["-m", "10", "http://198.18.0.10/"]).status.code(), Some(0));
    assert!(begun.elapsed() > Duration::from_millis(800), "a connection and a request over 400 ms");
    assert_eq!(
        set(&["cell.los=1"]),
        (Some(1), "ropeway-lab: unknown key `los` in `event 1`; did you mean `loss`?\n".to_owned())
    );
    let told: Vec<String> = lab.report().timeline.into_iter().map(|happening| happening.what).collect();
    assert!(told.contains(&"cell: outage, packets are dropped (set from outside)".to_owned()), "{told:?}");
}

#[test]
fn the_exit_code_is_the_program_s() {
    let Some(_labs) = labs() else { return };
    for (script, code) in [("exit 7", 7), ("kill -KILL $$", 137)] {
        let output = ropeway_lab(&["run", "wifi-good", "--", "sh", "-c", script]).output().expect("it can be started");
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(&format!("exit code {code}")));
    }
}

#[test]
fn programs_are_told_what_the_network_did_for_programs() {
    let Some(_labs) = labs() else { return };
    let arguments = ["--json", "run", "elevator:ci", "--at", "0.5", "--", "sleep", "3"];
    let output = ropeway_lab(&arguments).output().expect("it can be started");
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one JSON object");
    assert_eq!((&report["exit_code"], &report["scenario"]), (&0.into(), &"elevator:ci".into()));
    let outage = report["timeline"][0]["what"].as_str().expect("something happened");
    assert!(outage.starts_with("cell: outage"), "{report}");
}
