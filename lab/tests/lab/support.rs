//! What the tests share: whether labs can run, and one at a time.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use ropeway_lab::{
    Place,
    catalogue::Catalogue,
    lab::{Lab, LabError, LabOptions},
};

/// The right to use labs, one test at a time, or `None` where none can run.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn labs() -> Option<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    match Lab::check() {
        Ok(()) => Some(ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(reason) if is_required() => panic!("ROPEWAY_LAB_REQUIRED is set, and no lab can run: {reason}"),
        Err(reason) => {
            eprintln!("SKIPPED, no lab can run: {reason}");
            None
        }
    }
}

/// Says whether a test that cannot run has failed.
pub(crate) fn is_required() -> bool {
    env::var_os("ROPEWAY_LAB_REQUIRED").is_some_and(|value| value == "1")
}

/// Builds a lab of a scenario of this checkout.
pub(crate) fn start(scenario: &str) -> Lab {
    let scenario = Catalogue::new(scenarios()).scenario(scenario).expect("a scenario of this checkout");
    let options = LabOptions { seed: 1, with_origin: true, traces: PathBuf::new() };
    for _ in 0..TRIES {
        match Lab::start(&scenario, &options) {
            Ok(lab) => return lab,
            // Somebody else on this machine uses them.
            Err(LabError::Topology(error)) if error.to_string().contains("labs are running") => {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("others had all labs for {TRIES} s");
}

/// Runs curl at the client of a lab.
pub(crate) fn curl(lab: &Lab, arguments: &[&str]) -> Output {
    let mut command = lab.command(Place::Client, "curl").expect("curl is installed");
    command.args(["--silent", "--show-error"]).args(arguments).stdin(Stdio::null());
    command.output().expect("curl can be started")
}

/// Gives the command under test, with the scenarios of this checkout.
pub(crate) fn ropeway_lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropeway-lab"));
    command.args(arguments).env("ROPEWAY_SCENARIOS", scenarios()).stdin(Stdio::null());
    command
}

/// Gives the text of an output.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

/// How often a test tries to get a lab, a second apart, while others on this machine have all of them.
const TRIES: u32 = 120;
