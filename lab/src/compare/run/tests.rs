//! Runs in a lab that is no lab: everything on this machine, the servers and the peers being a few lines of shell.

use std::{net::IpAddr, path::Path, process::Command, sync::mpsc, thread};

use http::Method;
use tempfile::TempDir;

use super::*;
use crate::compare::lab::{Certificates, Site, Traffic};

/// A lab whose servers say that they listen, and do nothing more.
struct Pretence {
    folder: TempDir,
    void: Option<String>,
}

impl Pretence {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["ca.pem", "cert.pem", "key.pem", "executed.jsonl"] {
            std::fs::write(folder.path().join(file), "").expect("written");
        }
        Self { folder, void: None }
    }
}

impl Lab for Pretence {
    fn command(&self, place: Place, program: &Path) -> Result<Command, LabError> {
        Ok(match place {
            Place::Client => Command::new(program),
            Place::Backend | Place::Server => {
                let mut command = Command::new("sh");
                command.args(["-c", "echo listening; exec sleep 600"]);
                command
            }
        })
    }

    fn sites(&self) -> Vec<Site> {
        let here = IpAddr::from([127, 0, 0, 1]);
        vec![Site { addresses: vec![here], backend: here }]
    }

    fn port(&self) -> u16 {
        443
    }

    fn lead(&self, _site: usize, _port: u16) -> Result<(), LabError> {
        Ok(())
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn certificates(&self) -> Certificates {
        let file = |name: &str| self.folder.path().join(name);
        Certificates { ca: file("ca.pem"), cert: file("cert.pem"), key: file("key.pem") }
    }

    fn begin(&mut self) -> Result<Instant, LabError> {
        Ok(Instant::now())
    }

    fn finish(&mut self) -> Traffic {
        Traffic { bytes: 4711, void: self.void.clone() }
    }
}

fn programs() -> Programs {
    Programs { adapters: "/nowhere".into(), python: "python".into(), ropeway: "ropeway".into() }
}

fn network() -> Network {
    Network::steady(vec![Duration::ZERO, Duration::from_millis(5)], Vec::new())
}

/// Lets a peer that is a line of shell do two GETs of 2 KB.
fn outcome_of(script: &str) -> Outcome {
    let peer = Peer::of_shell("one", &format!("{READY}; {script}"));
    run(&programs(), &mut Pretence::new(), &peer, Work::Get2k, &network(), &AtomicBool::new(false))
        .expect("the lab stands")
}

fn errors(outcome: &Outcome) -> Vec<Option<&str>> {
    outcome.requests.iter().map(|request| request.error.as_deref()).collect()
}

#[test]
fn a_success_is_one_that_the_origin_knows_of() {
    let known = outcome_of(&format!("{LOG} {{\\\"id\\\":\\\"0\\\"}} >> $log; {ANSWER_2048}"));
    assert_eq!(errors(&known), [None, Some("the origin did not execute it")]);
    assert!(known.requests[0].ms.is_some() && known.requests[0].is_scored);
    assert_eq!((known.requests[0].executed, known.bytes), (1, 4711));
}

#[test]
fn a_short_body_is_no_success() {
    let outcome = outcome_of(r#"read line; echo '{"id":"0","status":200,"bytes":7,"ms":1,"error":null}'"#);
    assert_eq!(errors(&outcome)[0], Some("7 bytes came"));
}

#[test]
fn a_peer_that_crashes_has_failed_at_once() {
    let started = Instant::now();
    let outcome = outcome_of("read line; exit 3");
    assert_eq!(errors(&outcome), [Some("the peer has ended"); 2]);
    assert!(started.elapsed() < DEADLINE / 2);
}

#[test]
fn a_peer_that_cannot_start_has_failed_and_the_run_goes_on() {
    let peer = Peer::of_shell("one", "exit 1");
    let outcome = run(&programs(), &mut Pretence::new(), &peer, Work::Get2k, &network(), &AtomicBool::new(false));
    assert_eq!(errors(&outcome.expect("the lab stands")), [Some("it ended before it was ready"); 2]);
}

#[test]
fn every_request_of_a_cold_start_has_a_process_of_its_own() {
    let script = format!("{READY}; {LOG} {{\\\"id\\\":\\\"$$\\\"}} >> $log; read line");
    let (peer, mut lab) = (Peer::of_shell("one", &script), Pretence::new());
    run(&programs(), &mut lab, &peer, Work::Cold, &network(), &AtomicBool::new(false)).expect("the lab stands");
    let log = std::fs::read_to_string(lab.folder().join("executed.jsonl")).expect("written");
    let processes: std::collections::BTreeSet<_> = log.lines().collect();
    assert_eq!(processes.len(), 2);
}

#[test]
fn an_interrupt_ends_a_run_whose_peer_hangs() {
    let stop = AtomicBool::new(false);
    let (begun, has_begun) = mpsc::channel();
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let peer = Peer::of_shell("one", &format!("{READY}; exec sleep 600"));
            begun.send(()).expect("somebody listens");
            run(&programs(), &mut Pretence::new(), &peer, Work::Get2k, &network(), &stop)
        });
        has_begun.recv().expect("it begins");
        stop.store(true, Ordering::Relaxed);
        running.join().expect("no panic")
    });
    assert_eq!(outcome.expect_err("stopped").0, "interrupted");
}

#[test]
fn a_hang_is_judged_by_the_deadline_and_an_outage_by_its_end() {
    let seconds = Duration::from_secs;
    let network = Network::steady(Vec::new(), std::iter::once(seconds(3)..seconds(13)).collect());
    let request = Task { start: seconds(2), method: Method::POST, has_key: false, body_bytes: 1, answer_bytes: 1 };
    let hung = judge(&request, Try { asked: Some(seconds(2)), answered: None }, 0, &network);
    assert_eq!((hung.ms, hung.error.as_deref(), hung.after_outage_ms), (None, Some("deadline"), None));

    let answer = || Answer { id: "0".into(), status: Some(200), bytes: 1, error: None };
    let at = |second| Try { asked: Some(seconds(2)), answered: Some((seconds(second), Ok(answer()))) };
    let after = judge(&request, at(15), 2, &network);
    assert_eq!((after.ms, after.after_outage_ms, after.executed), (Some(13_000.0), Some(2_000.0), 2));
    let before = judge(&request, at(3), 1, &network);
    assert_eq!((before.ms, before.after_outage_ms), (Some(1_000.0), None));
    assert_eq!(judge(&request, at(33), 1, &network).error.as_deref(), Some("deadline"));
}

const READY: &str = r#"echo '{"ready":{"peer":"one","version":"1","settings":"none"}}'"#;

/// Names the origin's log; the peer finds it beside the authority.
const LOG: &str = "log=$(dirname $LAB_CA)/executed.jsonl; echo";

/// Answers every request with as many bytes as it asks for.
const ANSWER_2048: &str = r#"n=0; while read line; do
    case $line in *quit*) exit;; esac
    echo '{"id":"'$n'","status":200,"bytes":2048,"ms":1,"error":null}'; n=$((n+1)); done"#;
